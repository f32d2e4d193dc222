/* What the modules of C have in common: columns that Python lends them, and how a module ends. Each module is one file,
   which includes this before all else. `compiled.py` imports them. */

#ifndef TRACEQUARRY_COMPILED_H
#define TRACEQUARRY_COMPILED_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* --- columns ---------------------------------------------------------------------------------------------------- */

enum { MOST_COLUMNS = 32 };

/* What a column that is lent may be. */
enum { READ = 0, WRITTEN = 1, OR_NONE = 2 };

typedef struct {
    Py_ssize_t size; /* bytes of a value */
    int how;
} Column;

/* Columns of n values each, which are theirs that lent them again after `give_back`. */
typedef struct {
    Py_ssize_t n;
    void *at[MOST_COLUMNS]; /* NULL for None; never for no values */
    Py_buffer views[MOST_COLUMNS];
} Lent;

static inline void give_back(Lent *lent)
{
    for (int i = 0; i < MOST_COLUMNS; i++)
        if (lent->views[i].obj != NULL)
            PyBuffer_Release(&lent->views[i]);
}

/* Of arguments (n, column, ...) the columns, of which there are `count`, fewer than INT32_MAX values in each; 0, with an
   exception set and nothing to give back, if they are not so. */
static inline int borrow(PyObject *args, const Column *columns, int count, Lent *lent)
{
    static int64_t no_values;
    memset(lent, 0, sizeof *lent);
    if (PyTuple_Size(args) != count + 1) {
        PyErr_Format(PyExc_TypeError, "%d arguments are needed", count + 1);
        return 0;
    }
    lent->n = PyLong_AsSsize_t(PyTuple_GetItem(args, 0));
    if (lent->n == -1 && PyErr_Occurred())
        return 0;
    if (lent->n < 0 || lent->n >= INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "there are too many to count them in 32 bits");
        return 0;
    }
    for (int i = 0; i < count; i++) {
        PyObject *given = PyTuple_GetItem(args, i + 1);
        if (given == Py_None && columns[i].how & OR_NONE)
            continue;
        if (PyObject_GetBuffer(given, &lent->views[i], columns[i].how & WRITTEN ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0) {
            give_back(lent);
            return 0;
        }
        if (lent->views[i].len != lent->n * columns[i].size) {
            PyErr_SetString(PyExc_ValueError, "a column is not as long as the others");
            give_back(lent);
            return 0;
        }
        lent->at[i] = lent->n ? lent->views[i].buf : &no_values;
    }
    return 1;
}

/* --- the module ------------------------------------------------------------------------------------------------- */

static PyModuleDef_Slot module_slots[] = {
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

/* The last line of each: its name, what it is for, and its one function. */
#define MODULE(name, about, function, call, doc)                                                                       \
    static PyMethodDef module_methods[] = {{function, call, METH_VARARGS, doc}, {NULL, NULL, 0, NULL}};                \
    static struct PyModuleDef module_definition = {                                                                    \
        PyModuleDef_HEAD_INIT, #name, about, 0, module_methods, module_slots, NULL, NULL, NULL,                        \
    };                                                                                                                 \
    PyMODINIT_FUNC PyInit_##name(void)                                                                                 \
    {                                                                                                                  \
        return PyModuleDef_Init(&module_definition);                                                                   \
    }

#endif
