/* What `innermost` does in NumPy, interval by interval: how long those of each label were the innermost, within windows.

   The intervals of a lane (a thread of a process) are put in order of start, longer first. One walk over them keeps a
   stack of those that have begun: the innermost is the last of them that has not ended. One that has ended is taken away
   once nothing stands above it, so those that overlap in part are told apart, too.

   Python is not asked for anything meanwhile, so other threads may run. */

#include "sorted_runs.h"

/* n intervals, as they stand in the file. */
typedef struct {
    Py_ssize_t n;
    const int32_t *lane, *label;
    const int64_t *start, *end;
} Intervals;

/* n windows by lane and start; those of a lane are disjoint. */
typedef struct {
    Py_ssize_t n;
    const int32_t *lane;
    const int64_t *start, *end;
} Windows;

/* For how long intervals of a label were the innermost in a window. */
typedef struct {
    int32_t window, label;
    uint64_t ns; /* so that times of a damaged file do not overflow */
} Row;

typedef struct {
    Row *all;
    size_t count, room;
    uint64_t *sums; /* of each label in the window that the walk is in */
    int32_t *there; /* the labels that have one */
    size_t labels;
} Rows;

static int is_before(const void *intervals, int64_t b, int64_t a)
{
    const Intervals *t = intervals;
    if (t->start[b] != t->start[a])
        return t->start[b] < t->start[a];
    return t->end[b] != t->end[a] ? t->end[b] > t->end[a] : t->label[b] < t->label[a];
}

/* Make rows of the sums of a window, which are 0 again; 0 if there is no memory. */
static int leave(Rows *rows, Py_ssize_t window)
{
    for (size_t k = 0; k < rows->labels; k++) {
        if (rows->count == rows->room) {
            Row *more = realloc(rows->all, 2 * rows->room * sizeof *more);
            if (more == NULL)
                return 0;
            rows->all = more;
            rows->room *= 2;
        }
        uint64_t *sum = &rows->sums[rows->there[k]];
        Row row = {(int32_t)window, rows->there[k], *sum};
        rows->all[rows->count++] = row;
        *sum = 0;
    }
    rows->labels = 0;
    return 1;
}

/* Add the stretch [from, to) of a label to the windows that it meets: `*at` and those behind it, before `last`. Stretches
   come in order of time. */
static int add(const Windows *w, Py_ssize_t *at, Py_ssize_t last, int64_t from, int64_t to, int32_t label, Rows *rows)
{
    for (;;) {
        while (*at < last && w->end[*at] <= from)
            if (!leave(rows, (*at)++))
                return 0;
        if (*at == last || w->start[*at] >= to)
            return 1;
        int64_t begin = from > w->start[*at] ? from : w->start[*at];
        int64_t end = to < w->end[*at] ? to : w->end[*at];
        if (end > begin) { /* a window may be empty */
            if (rows->sums[label] == 0)
                rows->there[rows->labels++] = label;
            rows->sums[label] += (uint64_t)end - (uint64_t)begin;
        }
        if (end == to)
            return 1;
        from = w->end[*at] > from ? w->end[*at] : from;
    }
}

/* The stretches of n intervals of a lane, which stand in order, with the windows from `at` on. */
static int walk(const Intervals *t, const int64_t *order, size_t n, int64_t *stack, const Windows *w, Py_ssize_t at,
                Py_ssize_t last, Rows *rows)
{
    size_t depth = 0;
    int64_t now = INT64_MIN;
    for (size_t i = 0; i <= n; i++) {
        int64_t next = i < n ? t->start[order[i]] : INT64_MAX;
        while (depth && now < next) {
            int64_t top = stack[depth - 1], until = t->end[top] < next ? t->end[top] : next;
            if (until > now) {
                if (!add(w, &at, last, now, until, t->label[top], rows))
                    return 0;
                now = until;
            }
            if (t->end[top] <= now)
                depth--;
        }
        if (i < n) {
            now = next;
            stack[depth++] = order[i];
        }
    }
    return at == last || leave(rows, at);
}

/* The rows of all lanes; 0 if there is no memory. */
static int make(const Intervals *t, const Windows *w, Rows *rows)
{
    size_t n = (size_t)t->n, lanes = 0, labels = 1;
    for (Py_ssize_t i = 0; i < w->n; i++)
        if (w->lane[i] >= 0 && (size_t)w->lane[i] >= lanes)
            lanes = (size_t)w->lane[i] + 1;
    for (size_t i = 0; i < n; i++)
        if ((size_t)t->label[i] >= labels)
            labels = (size_t)t->label[i] + 1;
    size_t *begins = calloc(lanes + 2, sizeof *begins);
    int64_t *order = malloc((n + 1) * sizeof *order), *spare = malloc((n + 1) * sizeof *spare);
    rows->count = rows->labels = 0;
    rows->room = 1024;
    rows->all = malloc(rows->room * sizeof *rows->all);
    rows->sums = calloc(labels, sizeof *rows->sums);
    rows->there = malloc(labels * sizeof *rows->there);
    int done = begins && order && spare && rows->all && rows->sums && rows->there;
    if (done) {
        /* Of empty ones, and of those that no window asks for, nothing is wanted. */
        for (size_t i = 0; i < n; i++)
            if (t->end[i] > t->start[i] && t->lane[i] >= 0 && (size_t)t->lane[i] < lanes)
                begins[t->lane[i] + 2]++;
        for (size_t k = 2; k < lanes + 2; k++)
            begins[k] += begins[k - 1];
        for (size_t i = 0; i < n; i++)
            if (t->end[i] > t->start[i] && t->lane[i] >= 0 && (size_t)t->lane[i] < lanes)
                order[begins[t->lane[i] + 1]++] = (int64_t)i;
    }
    /* Now a lane begins where the one before it was filled to. */
    for (Py_ssize_t at = 0, last; done && at < w->n; at = last) {
        int32_t lane = w->lane[at];
        for (last = at; last < w->n && w->lane[last] == lane; last++)
            ;
        if (lane < 0)
            continue;
        size_t begin = begins[lane], count = begins[lane + 1] - begin;
        done = sort_runs(t, is_before, order + begin, count, spare) &&
               walk(t, order + begin, count, spare, w, at, last, rows);
    }
    free(begins);
    free(order);
    free(spare);
    return done;
}

/* --- for Python ------------------------------------------------------------------------------------------------ */

PyDoc_STRVAR(times_doc,
"times(n, lane, start, end, label, m, lane, start, end) -> rows\n\n"
"For how long which of n intervals were the innermost in each of m windows, which are sorted by lane and start. All are\n"
"buffers: lane and label int32, the others int64; labels are from 0 on. Gives as bytes the window and the label int32 and\n"
"the sum int64, in no order.");

static PyObject *times(PyObject *self, PyObject *args)
{
    static const Column columns[] = {{4, READ}, {8, READ}, {8, READ}, {4, READ}};
    enum { GIVEN = sizeof columns / sizeof *columns };
    Lent events, asked;
    Rows rows = {0};
    PyObject *result = NULL;
    int done = 0, known = 1;
    (void)self;
    if (PyTuple_Size(args) != 2 * GIVEN + 1) {
        PyErr_Format(PyExc_TypeError, "%d arguments are needed", 2 * GIVEN + 1);
        return NULL;
    }
    PyObject *first = PyTuple_GetSlice(args, 0, GIVEN + 1), *second = PyTuple_GetSlice(args, GIVEN + 1, 2 * GIVEN + 1);
    if (first == NULL || second == NULL || !borrow(first, columns, GIVEN, &events))
        goto over;
    if (borrow(second, columns, GIVEN - 1, &asked)) {
        Intervals intervals = {events.n, events.at[0], events.at[3], events.at[1], events.at[2]};
        Windows windows = {asked.n, asked.at[0], asked.at[1], asked.at[2]};
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < intervals.n; i++)
            known &= intervals.label[i] >= 0;
        done = known && make(&intervals, &windows, &rows);
        Py_END_ALLOW_THREADS
        give_back(&asked);
        if (done)
            result = PyBytes_FromStringAndSize((const char *)rows.all, (Py_ssize_t)(rows.count * sizeof(Row)));
        else if (known)
            PyErr_NoMemory();
        else
            PyErr_SetString(PyExc_ValueError, "a label is below 0");
        free(rows.all);
        free(rows.sums);
        free(rows.there);
    }
    give_back(&events);
over:
    Py_XDECREF(first);
    Py_XDECREF(second);
    return result;
}

MODULE(_innermost, "Which intervals are the innermost, one by one.", "times", times, times_doc)
