/* What `name_sums.as_columns` does in NumPy, node by node: the sums of the nodes of a call tree by what names them.

   Python is not asked for anything meanwhile, so other threads may run. */

#include "../../compiled.h"

/* n nodes in pre-order, of events as they stand in the file. */
typedef struct {
    Py_ssize_t n;
    const int64_t *order; /* the event of each node */
    const int32_t *process, *name;
    const int8_t *kind;
    const int64_t *length;
    const int64_t *self, *gpu, *total_gpu; /* by node, as `folded` */
    const uint8_t *folded;
} Nodes;

typedef struct {
    int32_t process, name, kind, folded;
    int64_t calls, total, self, gpu, total_gpu;
} Sum;

typedef struct {
    Sum *all;
    size_t count, room;
    uint32_t *slots; /* places + 1 */
    size_t size;
} Sums;

static size_t slot_of(const Sums *s, const Sum *sum)
{
    uint64_t h = ((uint64_t)(uint32_t)sum->process << 32 | (uint32_t)sum->name) * 0x9E3779B97F4A7C15u;
    h = (h ^ ((uint64_t)sum->kind << 1 | (uint64_t)sum->folded)) * 0xD6E8FEB86659FD93u;
    size_t at = (size_t)(h ^ (h >> 32)) & (s->size - 1);
    while (s->slots[at]) {
        const Sum *there = &s->all[s->slots[at] - 1];
        if (there->name == sum->name && there->kind == sum->kind && there->folded == sum->folded &&
            there->process == sum->process)
            break;
        at = (at + 1) & (s->size - 1);
    }
    return at;
}

/* Where a sum is added to, which begins there or has; NULL if there is no memory. */
static Sum *place_of(Sums *s, const Sum *sum)
{
    size_t at = slot_of(s, sum);
    if (s->slots[at])
        return &s->all[s->slots[at] - 1];
    if (s->count == s->room) {
        Sum *more = realloc(s->all, 2 * s->room * sizeof *more);
        if (more == NULL)
            return NULL;
        s->all = more;
        s->room *= 2;
    }
    s->all[s->count++] = *sum;
    s->slots[at] = (uint32_t)s->count;
    if (2 * s->count > s->size) {
        uint32_t *wider = calloc(2 * s->size, sizeof *wider);
        if (wider == NULL)
            return NULL;
        free(s->slots);
        s->slots = wider;
        s->size *= 2;
        for (size_t k = 0; k < s->count; k++)
            s->slots[slot_of(s, &s->all[k])] = (uint32_t)k + 1;
    }
    return &s->all[s->count - 1];
}

/* The sums, in the order in which they are come across; 0 if there is no memory. */
static int make(const Nodes *t, Sums *s)
{
    s->count = 0;
    s->room = 256;
    s->size = 1024;
    s->all = malloc(s->room * sizeof *s->all);
    s->slots = calloc(s->size, sizeof *s->slots);
    if (s->all == NULL || s->slots == NULL)
        return 0;
    for (Py_ssize_t i = 0; i < t->n; i++) {
        int64_t at = t->order[i];
        Sum sum = {t->process[at], t->name[at], t->kind[at], t->folded[i], 0, 0, 0, 0, 0};
        Sum *found = place_of(s, &sum);
        if (found == NULL)
            return 0;
        found->calls++;
        found->total += t->length[at];
        found->self += t->self[i];
        found->gpu += t->gpu[i];
        found->total_gpu += t->total_gpu[i];
    }
    return 1;
}

/* --- for Python ------------------------------------------------------------------------------------------------ */

PyDoc_STRVAR(sums_doc,
"sums(n, order, process, name, kind, length, self, folded, gpu, total_gpu) -> sums\n\n"
"The sums of n nodes by process, name, kind and whether they are folded. All are buffers: process and name int32,\n"
"kind int8, folded bool, the others int64. Gives them as bytes, in the order in which they are come across: process,\n"
"name, kind and folded int32, then calls and sums of length, self, gpu and total_gpu int64.");

static PyObject *sums(PyObject *self, PyObject *args)
{
    static const Column columns[] = {
        {8, READ}, {4, READ}, {4, READ}, {1, READ}, {8, READ}, {8, READ}, {1, READ}, {8, READ}, {8, READ},
    };
    Lent lent;
    void **c = lent.at;
    Sums made;
    PyObject *result = NULL;
    int done;
    (void)self;
    if (!borrow(args, columns, sizeof columns / sizeof *columns, &lent))
        return NULL;
    Nodes nodes = {lent.n, c[0], c[1], c[2], c[3], c[4], c[5], c[7], c[8], c[6]};
    Py_BEGIN_ALLOW_THREADS
    done = make(&nodes, &made);
    Py_END_ALLOW_THREADS
    give_back(&lent);
    if (done)
        result = PyBytes_FromStringAndSize((const char *)made.all, (Py_ssize_t)(made.count * sizeof(Sum)));
    else
        PyErr_NoMemory();
    free(made.all);
    free(made.slots);
    return result;
}

MODULE(_name_sums, "Sums of call trees by name.", "sums", sums, sums_doc)
