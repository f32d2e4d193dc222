/* What `path_sums.level_by_level` does in NumPy, node by node: the paths of a call tree, and the sums of the calls of each.

   Python is not asked for anything meanwhile, so other threads may run. */

#include "../../compiled.h"

/* As nesting.KINDS has it: on no path, and nobody's parent. */
enum { ASYNC = 0 };

/* n nodes in pre-order, of events as they stand in the file. */
typedef struct {
    Py_ssize_t n;
    const int64_t *order; /* the event of each node */
    const int32_t *parent;
    const int64_t *self; /* by node */
    const int32_t *process, *name;
    const int8_t *kind;
    const int64_t *start, *length;
} Nodes;

/* A path is known by the one above it, and kind and name of its last node; a root by its process, too. */
typedef struct {
    int32_t above, process, name, kind, depth, unused;
    int64_t calls, total, self, first;
} Path;

typedef struct {
    Path *all;
    size_t count, room;
    uint32_t *slots; /* places + 1 */
    size_t size;
} Paths;

static size_t slot_of(const Paths *p, const Path *path)
{
    uint64_t h = ((uint64_t)(uint32_t)path->above << 32 | (uint32_t)path->name) * 0x9E3779B97F4A7C15u;
    h = (h ^ ((uint64_t)(uint32_t)path->process << 8 | (uint64_t)path->kind)) * 0xD6E8FEB86659FD93u;
    size_t at = (size_t)(h ^ (h >> 32)) & (p->size - 1);
    while (p->slots[at]) {
        const Path *there = &p->all[p->slots[at] - 1];
        if (there->above == path->above && there->name == path->name && there->kind == path->kind &&
            there->process == path->process)
            break;
        at = (at + 1) & (p->size - 1);
    }
    return at;
}

/* The number of a path, which is new or not; -1 if there is no memory. */
static int32_t number_of(Paths *p, const Path *path)
{
    size_t at = slot_of(p, path);
    if (p->slots[at])
        return (int32_t)(p->slots[at] - 1);
    if (p->count == p->room) {
        Path *more = realloc(p->all, 2 * p->room * sizeof *more);
        if (more == NULL)
            return -1;
        p->all = more;
        p->room *= 2;
    }
    p->all[p->count++] = *path;
    p->slots[at] = (uint32_t)p->count;
    if (2 * p->count > p->size) {
        uint32_t *wider = calloc(2 * p->size, sizeof *wider);
        if (wider == NULL)
            return -1;
        free(p->slots);
        p->slots = wider;
        p->size *= 2;
        for (size_t k = 0; k < p->count; k++)
            p->slots[slot_of(p, &p->all[k])] = (uint32_t)k + 1;
    }
    return (int32_t)p->count - 1;
}

/* The path of each node, in the order in which they are come across; 0 if there is no memory. */
static int make(const Nodes *t, Paths *p, int32_t *of)
{
    p->count = 0;
    p->room = 256;
    p->size = 1024;
    p->all = malloc(p->room * sizeof *p->all);
    p->slots = calloc(p->size, sizeof *p->slots);
    if (p->all == NULL || p->slots == NULL)
        return 0;
    for (Py_ssize_t i = 0; i < t->n; i++) {
        int64_t at = t->order[i];
        int32_t parent = t->parent[i];
        of[i] = -1;
        if (t->kind[at] == ASYNC)
            continue;
        Path path = {parent < 0 ? -1 : of[parent], parent < 0 ? t->process[at] : 0, t->name[at], t->kind[at],
                     parent < 0 ? 0 : p->all[of[parent]].depth + 1, 0, 0, 0, 0, INT64_MAX};
        of[i] = number_of(p, &path);
        if (of[i] < 0)
            return 0;
        Path *found = &p->all[of[i]];
        found->calls++;
        found->total += t->length[at];
        found->self += t->self[i];
        if (t->start[at] < found->first)
            found->first = t->start[at];
    }
    /* Whose process it is, is said of all. */
    for (size_t k = 0; k < p->count; k++)
        if (p->all[k].above >= 0)
            p->all[k].process = p->all[p->all[k].above].process;
    return 1;
}

/* --- for Python ------------------------------------------------------------------------------------------------ */

PyDoc_STRVAR(number_doc,
"number(n, order, parent, self, process, name, kind, start, length, path) -> paths\n\n"
"The path of each of n nodes into `path`, -1 for none. All are buffers: parent, process, name and path int32, kind\n"
"int8, the others int64. Gives the paths as bytes, in the order in which they are come across: parent, process, name,\n"
"kind, depth and 0 int32, then calls, sums of length and self, and first start int64.");

static PyObject *number(PyObject *self, PyObject *args)
{
    static const Column columns[] = {
        {8, READ}, {4, READ}, {8, READ}, {4, READ}, {4, READ}, {1, READ}, {8, READ}, {8, READ}, {4, WRITTEN},
    };
    Lent lent;
    void **c = lent.at;
    Paths paths;
    PyObject *result = NULL;
    int done;
    (void)self;
    if (!borrow(args, columns, sizeof columns / sizeof *columns, &lent))
        return NULL;
    Nodes nodes = {lent.n, c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]};
    Py_BEGIN_ALLOW_THREADS
    done = make(&nodes, &paths, c[8]);
    Py_END_ALLOW_THREADS
    give_back(&lent);
    if (done)
        result = PyBytes_FromStringAndSize((const char *)paths.all, (Py_ssize_t)(paths.count * sizeof(Path)));
    else
        PyErr_NoMemory();
    free(paths.all);
    free(paths.slots);
    return result;
}

MODULE(_paths, "The paths of call trees, node by node.", "number", number, number_doc)
