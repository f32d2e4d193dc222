/* One pass over the bytes of events: finds where each event starts, cuts out the numbers that follow `"key":`, and
   numbers the distinct texts that remain. `cutting.py` describes the result.

   Reads no byte before the first event and at most PADDING - 1 bytes behind the last one. The pass runs without Python's
   lock. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words are read in little-endian order; without this module, the JSON decoder reads all events"
#endif

enum {
    PADDING = 64,     /* bytes behind the last event that may be read */
    KEY_BYTES = 5,    /* bytes before a colon that select the key: four characters and the quote */
    MAX_DIGITS = 18,  /* digits before the decimal point, so that the number fits into int64 */
    MAX_READ = 24,    /* digits that are read at all */
    STAYS = 4096,     /* size of the table of keys whose numbers stay in the text */
};

/* Bytes that grow. */
typedef struct {
    uint8_t *at;
    size_t used, room;
} Buffer;

typedef struct {
    Buffer starts, codes, first;               /* per event: int64, int32, int64 */
    Buffer whole, thousandths, pointed, exact; /* per number: int64, int64, bool, bool */
    Buffer texts;                              /* the distinct texts, one behind the other */
    Buffer ends, hashes;                       /* per distinct text: its end in `texts`, its hash; uint64 */
    uint32_t *slots;                           /* hash table: the number of a text + 1, or 0 */
    size_t slot_count;                         /* a power of two */
    int64_t numbers;                           /* numbers found so far */
} Cut;

/* Make room for n more bytes. Returns NULL if there is no memory. */
static uint8_t *room_for(Buffer *buffer, size_t n)
{
    if (buffer->room - buffer->used < n) {
        size_t room = 2 * buffer->room + n + 4096;
        uint8_t *at = realloc(buffer->at, room);
        if (at == NULL)
            return NULL;
        buffer->at = at;
        buffer->room = room;
    }
    return buffer->at + buffer->used;
}

static int add(Buffer *buffer, const void *value, size_t n)
{
    uint8_t *to = room_for(buffer, n);
    if (to == NULL)
        return 0;
    memcpy(to, value, n);
    buffer->used += n;
    return 1;
}

static uint64_t word(const uint8_t *at)
{
    uint64_t found;
    memcpy(&found, at, sizeof found);
    return found;
}

static uint64_t entry(const Buffer *buffer, size_t i)
{
    return word(buffer->at + 8 * i);
}

static int is_digit(uint8_t c)
{
    return (uint8_t)(c - '0') <= 9;
}

/* Parse the digits at a place into *whole; returns how many there are, MAX_READ at most. */
static unsigned parse_whole(const uint8_t *at, uint64_t *whole)
{
    unsigned n = 0;
    *whole = 0;
    for (; n < MAX_READ && is_digit(at[n]); n++)
        *whole = 10 * *whole + (uint64_t)(at[n] - '0');
    return n;
}

/* Round the first 8 digits behind a decimal point to *thousandths, half to even; returns how many digits there are,
   MAX_READ at most. */
static unsigned parse_fraction(const uint8_t *at, uint64_t *thousandths)
{
    uint64_t value = 0; /* the first 8 digits, padded with zeros */
    unsigned n = 0, used = 0;
    for (; n < MAX_READ && is_digit(at[n]); n++)
        if (used < 8)
            value = 10 * value + (uint64_t)(at[n] - '0'), used++;
    for (; used < 8; used++)
        value *= 10;
    uint64_t below = value % 100000;
    *thousandths = value / 100000;
    *thousandths += below > 50000 || (below == 50000 && *thousandths % 2 == 1);
    return n;
}

/* Parse the number that follows a colon behind a key. Returns where its digits start, and their length in *length; NULL
   if there is no number, or it stays in the text. *failed is set if there is no memory. */
static const uint8_t *cut_number(const uint8_t *colon, const uint8_t *end, const uint8_t *stays, Cut *cut,
                                 size_t *length, int *failed)
{
    const uint8_t *at = colon + 1;
    uint32_t key;
    uint64_t whole, thousandths = 0;
    if (colon[-1] != '"')
        return NULL;
    at += *at == ' ';
    if (*at != '-' && !is_digit(*at))
        return NULL;
    memcpy(&key, colon - KEY_BYTES, sizeof key);
    if (stays[(uint32_t)(key * 0x9E3779B1u) >> 20])
        return NULL;
    at += *at == '-';
    unsigned n = parse_whole(at, &whole);
    if (n == 0 || n > MAX_DIGITS || (n > 1 && *at == '0'))
        return NULL;
    uint8_t pointed = at[n] == '.', exact = 1;
    if (pointed) {
        unsigned behind = parse_fraction(at + n + 1, &thousandths);
        if (behind == 0)
            return NULL;
        exact = behind < 8;
        n += 1 + behind;
    }
    if (at + n >= end || strchr(",} \t\r\n", at[n]) == NULL || at[n] == '\0')
        return NULL;
    *length = n;
    *failed = !(add(&cut->whole, &whole, 8) && add(&cut->thousandths, &thousandths, 8)
                && add(&cut->pointed, &pointed, 1) && add(&cut->exact, &exact, 1));
    cut->numbers++;
    return at;
}

/* Hash n bytes that are followed by at least 8 zeros. */
static uint64_t hash_of(const uint8_t *at, size_t n)
{
    uint64_t hash = n;
    for (size_t i = 0; i < n; i += 8) {
        hash = (hash ^ word(at + i)) * 0x9E3779B185EBCA87u;
        hash ^= hash >> 32;
    }
    return hash;
}

/* Double the hash table if it would be more than half full. */
static int grow(Cut *cut)
{
    size_t n = cut->ends.used / 8, count = cut->slot_count ? 2 * cut->slot_count : 4096;
    if (2 * (n + 1) <= cut->slot_count)
        return 1;
    uint32_t *slots = calloc(count, sizeof *slots);
    if (slots == NULL)
        return 0;
    for (size_t code = 0; code < n; code++) {
        size_t slot = entry(&cut->hashes, code) & (count - 1);
        while (slots[slot])
            slot = (slot + 1) & (count - 1);
        slots[slot] = (uint32_t)code + 1;
    }
    free(cut->slots);
    cut->slots = slots;
    cut->slot_count = count;
    return 1;
}

/* End an event whose text begins at `begin` in `texts`: give it the code of that text. A text that is already known is
   removed again. */
static int end_event(Cut *cut, size_t begin)
{
    size_t n = cut->texts.used - begin;
    uint8_t *zeros = room_for(&cut->texts, 8);
    if (zeros == NULL || !grow(cut))
        return 0;
    memset(zeros, 0, 8);
    const uint8_t *text = cut->texts.at + begin;
    uint64_t hash = hash_of(text, n);
    size_t slot = hash & (cut->slot_count - 1);
    uint32_t code;
    for (; cut->slots[slot]; slot = (slot + 1) & (cut->slot_count - 1)) {
        code = cut->slots[slot] - 1;
        if (entry(&cut->hashes, code) != hash)
            continue;
        uint64_t from = code ? entry(&cut->ends, code - 1) : 0;
        if (entry(&cut->ends, code) - from == n && memcmp(cut->texts.at + from, text, n) == 0) {
            cut->texts.used = begin;
            return add(&cut->codes, &code, 4);
        }
    }
    uint64_t end = cut->texts.used;
    code = (uint32_t)(cut->ends.used / 8);
    cut->slots[slot] = code + 1;
    return add(&cut->ends, &end, 8) && add(&cut->hashes, &hash, 8) && add(&cut->codes, &code, 4);
}

static int begin_event(Cut *cut, size_t start)
{
    int64_t at = (int64_t)start;
    return add(&cut->starts, &at, 8) && add(&cut->first, &cut->numbers, 8);
}

/* Cut the events of data[begin:last]; each but the first begins with a brace behind `gap`. Returns 0 if there is no
   memory. */
static int cut_all(const uint8_t *data, size_t begin, size_t last, const uint8_t *gap, size_t gap_size,
                   const uint8_t *stays, Cut *cut)
{
    size_t copied = begin; /* up to here, the bytes are in `texts` or cut out */
    size_t text = 0;       /* where the text of the current event begins in `texts` */
    if (!begin_event(cut, begin))
        return 0;
    for (size_t at = begin + KEY_BYTES; at < last; at++) {
        if (data[at] == ':') {
            int failed = 0;
            size_t length = 0;
            const uint8_t *digits = cut_number(data + at, data + last, stays, cut, &length, &failed);
            if (digits == NULL)
                continue;
            if (failed || !add(&cut->texts, data + copied, (size_t)(digits - data) - copied))
                return 0;
            copied = (size_t)(digits - data) + length;
            at = copied - 1;
        } else if (data[at] == '{' && at >= gap_size && memcmp(data + at - gap_size, gap, gap_size) == 0) {
            if (!add(&cut->texts, data + copied, at - copied) || !end_event(cut, text) || !begin_event(cut, at))
                return 0;
            copied = at;
            text = cut->texts.used;
        }
    }
    return add(&cut->texts, data + copied, last - copied) && end_event(cut, text) && begin_event(cut, last);
}

static PyObject *list_of_texts(const Cut *cut)
{
    Py_ssize_t n = (Py_ssize_t)(cut->ends.used / 8);
    PyObject *texts = PyList_New(n);
    uint64_t from = 0;
    for (Py_ssize_t i = 0; texts != NULL && i < n; i++) {
        uint64_t end = entry(&cut->ends, (size_t)i);
        PyObject *text = PyBytes_FromStringAndSize((const char *)cut->texts.at + from, (Py_ssize_t)(end - from));
        if (text == NULL || PyList_SetItem(texts, i, text) < 0) {
            Py_DECREF(texts);
            return NULL;
        }
        from = end;
    }
    return texts;
}

PyDoc_STRVAR(cut_doc,
"cut(data, begin, last, gap, stays) -> (starts, codes, texts, first, whole, thousandths, pointed, exact)\n\n"
"Cut the events of data[begin:last]; each begins with a brace behind `gap`. `stays` has a byte for each hash of a key,\n"
"not 0 if the numbers of the key stay in the text. Returns the fields of cutting.Cut, as bytes.");

static PyObject *cut_events(PyObject *self, PyObject *args)
{
    PyObject *given[3], *result = NULL, *texts;
    char *data, *gap, *stays;
    Py_ssize_t size, begin, last, gap_size, stays_size;
    (void)self;
    if (!PyArg_ParseTuple(args, "SnnSS:cut", &given[0], &begin, &last, &given[1], &given[2])
        || PyBytes_AsStringAndSize(given[0], &data, &size) < 0
        || PyBytes_AsStringAndSize(given[1], &gap, &gap_size) < 0
        || PyBytes_AsStringAndSize(given[2], &stays, &stays_size) < 0)
        return NULL;
    if (begin < 0 || last < begin || size < last || size - last < PADDING || stays_size != STAYS) {
        PyErr_SetString(PyExc_ValueError, "the events must lie within the data, with padding behind them");
        return NULL;
    }
    if (last >= INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "the data must be smaller than 2 GiB");
        return NULL;
    }
    Cut cut;
    int done;
    memset(&cut, 0, sizeof cut);
    Py_BEGIN_ALLOW_THREADS
    done = cut_all((const uint8_t *)data, (size_t)begin, (size_t)last, (const uint8_t *)gap, (size_t)gap_size,
                   (const uint8_t *)stays, &cut);
    Py_END_ALLOW_THREADS
    if (!done)
        PyErr_NoMemory();
    else if ((texts = list_of_texts(&cut)) != NULL) {
#define AS_BYTES(buffer) buffer.used ? (const char *)buffer.at : "", (Py_ssize_t)buffer.used
        result = Py_BuildValue("(y#y#Ny#y#y#y#y#)", AS_BYTES(cut.starts), AS_BYTES(cut.codes), texts,
                               AS_BYTES(cut.first), AS_BYTES(cut.whole), AS_BYTES(cut.thousandths),
                               AS_BYTES(cut.pointed), AS_BYTES(cut.exact));
#undef AS_BYTES
    }
    Buffer *buffers[] = {&cut.starts, &cut.codes, &cut.first, &cut.whole, &cut.thousandths,
                         &cut.pointed, &cut.exact, &cut.texts, &cut.ends, &cut.hashes};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]->at);
    free(cut.slots);
    return result;
}

static PyModuleDef_Slot slots[] = {
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyMethodDef methods[] = {{"cut", cut_events, METH_VARARGS, cut_doc}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_cutting", "Cuts the numbers out of events.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__cutting(void)
{
    return PyModuleDef_Init(&module);
}
