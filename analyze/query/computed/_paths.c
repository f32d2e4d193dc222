/* What `path_sums.level_by_level` does in NumPy, node by node: the paths of a call tree, and the sums of the calls of each.

   Python is not asked for anything meanwhile, so other threads may run. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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
    enum { COLUMNS = 9 };
    static const Py_ssize_t sizes[COLUMNS] = {8, 4, 8, 4, 4, 1, 8, 8, 4};
    static int64_t none;
    Py_buffer views[COLUMNS];
    void *c[COLUMNS];
    PyObject *result = NULL;
    int held = 0, sound = 1;
    (void)self;
    if (PyTuple_Size(args) != COLUMNS + 1) {
        PyErr_Format(PyExc_TypeError, "number() takes %d arguments", COLUMNS + 1);
        return NULL;
    }
    Py_ssize_t n = PyLong_AsSsize_t(PyTuple_GetItem(args, 0));
    if (n == -1 && PyErr_Occurred())
        return NULL;
    if (n < 0 || n >= INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "there are too many nodes to count them in 32 bits");
        return NULL;
    }
    memset(views, 0, sizeof views);
    for (; sound && held < COLUMNS; held++) {
        int flags = held == COLUMNS - 1 ? PyBUF_WRITABLE : PyBUF_SIMPLE;
        if (PyObject_GetBuffer(PyTuple_GetItem(args, held + 1), &views[held], flags) < 0) {
            sound = 0;
            break;
        }
        c[held] = n ? views[held].buf : &none;
        if (views[held].len != n * sizes[held]) {
            PyErr_SetString(PyExc_ValueError, "a column is not as long as the others");
            sound = 0;
        }
    }
    if (sound) {
        Nodes nodes = {n, c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]};
        Paths paths;
        int done;
        Py_BEGIN_ALLOW_THREADS
        done = make(&nodes, &paths, c[8]);
        Py_END_ALLOW_THREADS
        if (done)
            result = PyBytes_FromStringAndSize((const char *)paths.all, (Py_ssize_t)(paths.count * sizeof(Path)));
        else
            PyErr_NoMemory();
        free(paths.all);
        free(paths.slots);
    }
    for (int i = 0; i < held; i++)
        if (views[i].obj != NULL)
            PyBuffer_Release(&views[i]);
    return result;
}

static PyMethodDef methods[] = {{"number", number, METH_VARARGS, number_doc}, {NULL, NULL, 0, NULL}};

static PyModuleDef_Slot slots[] = {
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_paths", "The paths of call trees, node by node.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__paths(void)
{
    return PyModuleDef_Init(&module);
}
