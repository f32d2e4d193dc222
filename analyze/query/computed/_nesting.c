/* What `nesting` does in NumPy, event by event: the same order, nesting and sums, faster.

   Events of a lane (a thread of a process) are put in order of start, longer first. Then one walk over them, with a
   stack of those that may still take others in, gives each its parent: the last event before it that ends at or after
   its end, and after its start. One that ends earlier takes in nothing that comes later.

   Python is not asked for anything meanwhile, so other threads may run. */

#include "sorted_runs.h"

/* As nesting.KINDS has them. */
enum { ASYNC, CALL, OP, OVERHEAD, PYTHON, RANGE };

/* What a file does not say. */
static const int64_t UNKNOWN = INT64_MAX;

/* n events, as they stand in the file. */
typedef struct {
    Py_ssize_t n;
    const int32_t *process, *name;
    const int8_t *kind;
    const int64_t *owner; /* NULL: the process alone says whose a thread is */
    const int64_t *stray; /* the thread of a call or overhead that no operator made; NULL: they stay on theirs */
    const int64_t *thread, *op, *start, *length, *launched;
} Events;

/* The same n in pre-order. */
typedef struct {
    int64_t *order; /* where each stands in the file */
    int32_t *parent, *last;
    int16_t *depth;
    int64_t *self, *gpu, *total_gpu;
    uint8_t *folded;
} Tree;

typedef struct {
    int64_t process, owner, thread;
} Lane;

static uint64_t mixed(uint64_t a, uint64_t b)
{
    uint64_t h = (a ^ (b * 0x9E3779B97F4A7C15u)) * 0xD6E8FEB86659FD93u;
    return h ^ (h >> 32);
}

static size_t table_size(size_t entries)
{
    size_t size = 64;
    while (size < 2 * entries)
        size *= 2;
    return size;
}

/* --- calls that no operator made ------------------------------------------------------------------------------- */

static int is_op(const Events *e, Py_ssize_t i)
{
    return (e->kind[i] == OP || e->kind[i] == RANGE) && e->op[i] > 0 && e->op[i] != UNKNOWN;
}

static int may_stray(const Events *e, Py_ssize_t i)
{
    return e->kind[i] == CALL || e->kind[i] == OVERHEAD;
}

/* Where in a table of places + 1 an event with this process and op id is, or the free entry for it. */
static size_t slot_of(const Events *e, const uint32_t *slots, size_t size, Py_ssize_t i)
{
    size_t at = mixed((uint64_t)e->op[i], (uint64_t)e->process[i]) & (size - 1);
    while (slots[at]) {
        Py_ssize_t other = (Py_ssize_t)slots[at] - 1;
        if (e->op[other] == e->op[i] && e->process[other] == e->process[i])
            break;
        at = (at + 1) & (size - 1);
    }
    return at;
}

/* The thread on which each event counts; 0 if there is no memory. */
static int find_threads(const Events *e, int64_t *threads)
{
    size_t ops = 0, strays = 0;
    memcpy(threads, e->thread, (size_t)e->n * sizeof *threads);
    for (Py_ssize_t i = 0; i < e->n; i++) {
        ops += (size_t)is_op(e, i);
        strays += (size_t)may_stray(e, i);
    }
    if (e->stray == NULL || strays == 0)
        return 1;
    size_t size = table_size(ops);
    uint32_t *slots = calloc(size, sizeof *slots);
    if (slots == NULL)
        return 0;
    for (Py_ssize_t i = 0; i < e->n; i++)
        if (is_op(e, i))
            slots[slot_of(e, slots, size, i)] = (uint32_t)i + 1;
    for (Py_ssize_t i = 0; i < e->n; i++)
        if (may_stray(e, i) && slots[slot_of(e, slots, size, i)] == 0)
            threads[i] = e->stray[i];
    free(slots);
    return 1;
}

/* --- lanes ----------------------------------------------------------------------------------------------------- */

static int compare_lanes(const void *a, const void *b)
{
    const Lane *x = a, *y = b;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    if (x->owner != y->owner)
        return x->owner < y->owner ? -1 : 1;
    return (x->thread > y->thread) - (x->thread < y->thread);
}

static Lane lane_of(const Events *e, const int64_t *threads, Py_ssize_t i)
{
    /* The ranges of collectives are apart: they end on another thread than they began on. */
    Lane lane = {(int64_t)e->process[i] * 2 + (e->kind[i] == ASYNC), e->owner ? e->owner[i] : 0, threads[i]};
    return lane;
}

/* Where in a table of places + 1 a lane is, or the free entry for it. */
static size_t slot_of_lane(const Lane *lanes, const uint32_t *slots, size_t size, const Lane *lane)
{
    uint64_t owner = mixed((uint64_t)lane->process, (uint64_t)lane->owner);
    size_t at = mixed((uint64_t)lane->thread, owner) & (size - 1);
    while (slots[at] && compare_lanes(lane, &lanes[slots[at] - 1]) != 0)
        at = (at + 1) & (size - 1);
    return at;
}

/* The lane of each event by its place among all lanes, which are sorted; how many there are, or -1 without memory. */
static Py_ssize_t find_lanes(const Events *e, const int64_t *threads, uint32_t *lane)
{
    size_t size = 1024, count = 0, room = 256;
    uint32_t *slots = calloc(size, sizeof *slots), *rank = NULL;
    Lane *lanes = malloc(room * sizeof *lanes), *sorted = NULL;
    int done = slots != NULL && lanes != NULL;
    for (Py_ssize_t i = 0; done && i < e->n; i++) {
        Lane own = lane_of(e, threads, i);
        /* Neighbours in a file are mostly of one thread. */
        if (i && compare_lanes(&own, &lanes[lane[i - 1]]) == 0) {
            lane[i] = lane[i - 1];
            continue;
        }
        size_t at = slot_of_lane(lanes, slots, size, &own);
        if (slots[at] == 0) {
            if (count == room) {
                Lane *more = realloc(lanes, 2 * room * sizeof *lanes);
                if (more == NULL) {
                    done = 0;
                    break;
                }
                lanes = more;
                room *= 2;
            }
            lanes[count++] = own;
            slots[at] = (uint32_t)count;
            if (2 * count > size) { /* a table twice as large */
                uint32_t *wider = calloc(2 * size, sizeof *wider);
                if (wider == NULL) {
                    done = 0;
                    break;
                }
                free(slots);
                slots = wider;
                size *= 2;
                for (size_t k = 0; k < count; k++)
                    slots[slot_of_lane(lanes, slots, size, &lanes[k])] = (uint32_t)k + 1;
            }
            lane[i] = (uint32_t)count - 1;
        } else
            lane[i] = slots[at] - 1;
    }
    if (done) {
        sorted = malloc((count + 1) * sizeof *sorted);
        rank = malloc((count + 1) * sizeof *rank);
        done = sorted != NULL && rank != NULL;
    }
    if (done) {
        memcpy(sorted, lanes, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, compare_lanes);
        for (size_t k = 0; k < count; k++) {
            Lane *found = bsearch(&lanes[k], sorted, count, sizeof *sorted, compare_lanes);
            rank[k] = (uint32_t)(found - sorted);
        }
        for (Py_ssize_t i = 0; i < e->n; i++)
            lane[i] = rank[lane[i]];
    }
    free(slots);
    free(lanes);
    free(sorted);
    free(rank);
    return done ? (Py_ssize_t)count : -1;
}

/* --- order ----------------------------------------------------------------------------------------------------- */

/* Whether event b stands before event a, which is before it in the file. */
static int is_before(const void *events, int64_t b, int64_t a)
{
    const Events *e = events;
    if (e->start[b] != e->start[a])
        return e->start[b] < e->start[a];
    if (e->length[b] != e->length[a])
        return e->length[b] > e->length[a];
    int call_b = e->kind[b] == CALL, call_a = e->kind[a] == CALL;
    return call_b != call_a ? call_b < call_a : e->op[b] < e->op[a];
}

/* --- the tree -------------------------------------------------------------------------------------------------- */

/* The time of an event without that of its children, which overlap each other: each moment counts once. */
static int64_t self_of_overlapping(const Events *e, const Tree *t, int32_t i)
{
    int64_t start = e->start[t->order[i]], left = e->length[t->order[i]], covered = start;
    for (int32_t c = i + 1; c <= t->last[i]; c++) {
        if (t->parent[c] != i)
            continue;
        int64_t from = e->start[t->order[c]], end = from + e->length[t->order[c]];
        if (end > (from > covered ? from : covered))
            left -= end - (from > covered ? from : covered);
        if (end > covered)
            covered = end;
    }
    return left;
}

/* Parents, depths and last descendants of the events begin to end - 1, which are a lane in order. */
static void nest(const Events *e, Tree *t, int32_t begin, int32_t end, int32_t *stack)
{
    int32_t depth = 0;
    for (int32_t i = begin; i < end; i++) {
        int64_t at = t->order[i], start = e->start[at], stop = start + e->length[at];
        int alone = e->kind[at] == ASYNC;
        while (depth) {
            int64_t above = t->order[stack[depth - 1]], ends = e->start[above] + e->length[above];
            if (!alone && ends >= stop && ends > start)
                break;
            t->last[stack[--depth]] = i - 1;
        }
        t->parent[i] = depth ? stack[depth - 1] : -1;
        t->depth[i] = (int16_t)depth;
        t->last[i] = i;
        t->self[i] = e->length[at];
        if (!alone)
            stack[depth++] = i;
    }
    while (depth)
        t->last[stack[--depth]] = end - 1;
}

static int32_t name_at(const Events *e, const Tree *t, int32_t i)
{
    return e->name[t->order[i]];
}

/* What the events have of their own, and with all below them. */
static void sum_up(const Events *e, Tree *t)
{
    int32_t n = (int32_t)e->n;
    uint8_t *children = t->folded; /* their number, up to 2 */
    memset(children, 0, (size_t)n * sizeof *children);
    for (int32_t i = 0; i < n; i++) {
        int32_t above = t->parent[i];
        t->gpu[i] = e->launched[t->order[i]];
        if (above >= 0) {
            t->self[above] -= e->length[t->order[i]];
            children[above] += children[above] < 2;
        }
    }
    /* From the last on: what stands above an event has its number of children until it is its turn. */
    for (int32_t i = n - 1; i >= 0; i--) {
        int32_t above = t->parent[i];
        if (t->self[i] < 0)
            t->self[i] = self_of_overlapping(e, t, i);
        t->folded[i] = above >= 0 && children[above] == 1 && name_at(e, t, above) == name_at(e, t, i);
        if (t->folded[i])
            t->gpu[above] = 0;
    }
    /* Sums up to each event first: what lies below one is the difference of two. */
    int64_t so_far = 0;
    for (int32_t i = 0; i < n; i++)
        t->total_gpu[i] = so_far += t->gpu[i];
    for (int32_t i = 0; i < n; i++)
        t->total_gpu[i] = t->total_gpu[t->last[i]] - t->total_gpu[i] + t->gpu[i];
}

/* 0 if there is no memory. Columns of the tree that are made last hold threads and lanes until then. */
static int make(const Events *e, Tree *t)
{
    size_t n = (size_t)e->n;
    int64_t *threads = t->total_gpu;
    uint32_t *lane = (uint32_t *)t->parent;
    Py_ssize_t lanes = find_threads(e, threads) ? find_lanes(e, threads, lane) : -1;
    size_t *begins = lanes < 0 ? NULL : calloc((size_t)lanes + 2, sizeof *begins);
    int done = begins != NULL;
    if (done) {
        for (size_t i = 0; i < n; i++)
            begins[lane[i] + 2]++;
        for (Py_ssize_t k = 2; k < lanes + 2; k++)
            begins[k] += begins[k - 1];
        for (size_t i = 0; i < n; i++)
            t->order[begins[lane[i] + 1]++] = (int64_t)i;
        /* Now a lane begins where the one before it was filled to. */
        for (Py_ssize_t k = 0; done && k < lanes; k++) {
            size_t begin = begins[k], end = begins[k + 1];
            done = sort_runs(e, is_before, t->order + begin, end - begin, threads);
            if (done)
                nest(e, t, (int32_t)begin, (int32_t)end, (int32_t *)(void *)threads);
        }
    }
    if (done)
        sum_up(e, t);
    free(begins);
    return done;
}

/* --- for Python ------------------------------------------------------------------------------------------------ */

PyDoc_STRVAR(tree_doc,
"tree(n, process, kind, name, owner, stray, thread, op, start, length, launched,\n"
"     order, parent, last, depth, self, folded, gpu, total_gpu)\n\n"
"The call tree of n events, into the columns from `order` on. All are buffers: process, name, parent and last int32,\n"
"kind int8, depth int16, folded bool, the others int64; owner and stray may be None.");

static PyObject *make_tree(PyObject *self, PyObject *args)
{
    static const Column columns[] = {
        {4, READ}, {1, READ}, {4, READ}, {8, READ | OR_NONE}, {8, READ | OR_NONE}, /* process, ..., stray */
        {8, READ}, {8, READ}, {8, READ}, {8, READ}, {8, READ},                     /* thread, ..., launched */
        {8, WRITTEN}, {4, WRITTEN}, {4, WRITTEN}, {2, WRITTEN},                    /* order, ..., depth */
        {8, WRITTEN}, {1, WRITTEN}, {8, WRITTEN}, {8, WRITTEN},                    /* self, ..., total_gpu */
    };
    Lent lent;
    void **c = lent.at;
    int done;
    (void)self;
    if (!borrow(args, columns, sizeof columns / sizeof *columns, &lent))
        return NULL;
    Events events = {lent.n, c[0], c[2], c[1], c[3], c[4], c[5], c[6], c[7], c[8], c[9]};
    Tree tree = {c[10], c[11], c[12], c[13], c[14], c[16], c[17], c[15]};
    Py_BEGIN_ALLOW_THREADS
    done = make(&events, &tree);
    Py_END_ALLOW_THREADS
    give_back(&lent);
    if (!done)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

MODULE(_nesting, "The nesting of call trees, event by event.", "tree", make_tree, tree_doc)
