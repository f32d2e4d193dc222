/* What `cutting` does in NumPy, in one pass over the bytes: the same starts, texts and numbers, faster.

   An event begins behind a gap, which is the same between every two. A number is cut out of it where `"key":`, or the
   same with a space behind it, is followed by one; what a number is, and which stay in the text, is said in cutting.py.
   All that is left of an event is copied behind the texts known so far, and taken away again if it is one of them.

   Reads no byte before the first, nor more than PADDING - 1 bytes behind the last. Python is not asked for anything
   during the pass, so other threads may run. */

#include "../../compiled.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words are read in little-endian order; NumPy does the work here"
#endif

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#define SSE2 1
#endif

enum {
    PADDING = 64, /* bytes behind the last event that may be read */
    BEFORE = 5,   /* bytes before a colon that tell which key it ends */
    DIGITS = 18,  /* most digits before the point of a number that is cut out */
    STAYS = 4096, /* entries of the table of keys whose numbers stay */
    STEP = 16,    /* bytes that are looked through at a time */
};

static const uint32_t MIX = 0x9E3779B1u;
static const uint64_t ONES = 0x0101010101010101u;
static const uint64_t HIGHS = 0x8080808080808080u;

/* Bytes that grow. */
typedef struct {
    uint8_t *at;
    size_t used, room;
} Buffer;

typedef struct {
    Buffer starts, codes, first;                /* of each event: int64, int32, int64 */
    Buffer whole, thousandths, pointed, exact;  /* of each number: int64, int64, bool, bool */
    Buffer texts;                               /* one behind the other */
    Buffer ends, hashes;                        /* of each text: where it ends among them, and its hash; uint64 */
    uint32_t *slots;                            /* hash table of texts: the number of a text + 1, or 0 */
    size_t places;                              /* of the table, a power of two */
    int64_t numbers;                            /* found so far */
} Cut;

/* Room for n more bytes behind those that are used; NULL if there is no memory. */
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

/* The place of the lowest of some bits; they are not 0. */
static unsigned lowest(uint32_t bits)
{
#if defined(__GNUC__)
    return (unsigned)__builtin_ctz(bits);
#else
    unsigned n = 0;
    while (!(bits >> n & 1))
        n++;
    return n;
#endif
}

/* Which of STEP bytes are an opening bracket or a colon that may be followed by a number, a bit for each. Colons that
   surely are not are left out, for speed alone. Reads one byte before them and two behind. */
#ifdef SSE2
static __m128i bytes_at(const uint8_t *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

static __m128i are(__m128i bytes, char what)
{
    return _mm_cmpeq_epi8(bytes, _mm_set1_epi8(what));
}

static __m128i begin_number(__m128i bytes)
{
    __m128i value = _mm_sub_epi8(bytes, _mm_set1_epi8('0'));
    __m128i digit = _mm_cmpeq_epi8(_mm_min_epu8(value, _mm_set1_epi8(9)), value);
    return _mm_or_si128(digit, are(bytes, '-'));
}

static uint32_t places(const uint8_t *at)
{
    __m128i here = bytes_at(at), next = bytes_at(at + 1);
    __m128i key = _mm_and_si128(are(bytes_at(at - 1), '"'), are(here, ':'));
    __m128i behind_space = _mm_and_si128(are(next, ' '), begin_number(bytes_at(at + 2)));
    __m128i number = _mm_and_si128(key, _mm_or_si128(begin_number(next), behind_space));
    return (uint32_t)_mm_movemask_epi8(_mm_or_si128(number, are(here, '{')));
}
#else
/* The highest bit of each byte that is equal. */
static uint64_t are(uint64_t bytes, char what)
{
    uint64_t other = bytes ^ (ONES * (uint8_t)what);
    return ~(((other & ~HIGHS) + ~HIGHS) | other) & HIGHS;
}

static uint32_t places(const uint8_t *at)
{
    uint32_t found = 0;
    for (int i = 0; i < STEP; i += 8) {
        uint64_t here = word(at + i);
        uint64_t bits = (are(word(at + i - 1), '"') & are(here, ':')) | are(here, '{');
        /* The eight highest bits, one beside the other. */
        found |= (uint32_t)(((bits >> 7) * 0x0102040810204080u) >> 56) << i;
    }
    return found;
}
#endif

/* How many digits a word begins with, 8 at most; in *digits what each of its characters is as a digit. */
static unsigned leading(uint64_t text, uint64_t *digits)
{
    *digits = text ^ (ONES * '0');
    uint64_t other = (((*digits & ~HIGHS) + ONES * 0x76) | *digits) & HIGHS;
    if (other == 0)
        return 8;
    return (unsigned)((((other & (~other + 1)) >> 7) * 0x0001020304050607u) >> 56);
}

/* The number that 8 bytes of 0 to 9 make, the first byte the highest: pairs, then fours, then all. */
static uint64_t decimal(uint64_t digits)
{
    digits = (digits * (1 + (10 << 8))) >> 8 & 0x00FF00FF00FF00FFu;
    digits = (digits * (1 + (100 << 16))) >> 16 & 0x0000FFFF0000FFFFu;
    return (digits * (1 + (UINT64_C(10000) << 32))) >> 32;
}

static const uint64_t TENS[9] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};

/* Put the digits behind those of *whole, 24 together at most; how many there are. */
static unsigned integer(const uint8_t *at, uint64_t *whole)
{
    unsigned length = 0, n = 8;
    *whole = 0;
    while (n == 8 && length < 24) {
        uint64_t digits;
        n = leading(word(at + length), &digits);
        if (n)
            *whole = *whole * TENS[n] + decimal(digits << 8 * (8 - n));
        length += n;
    }
    return length;
}

/* Thousandths that digits behind a point make, 8 of them at most, half to even; how many digits there are, of 24. */
static unsigned fraction(const uint8_t *at, uint64_t *thousandths)
{
    uint64_t digits, rest;
    unsigned n = leading(word(at), &digits), length = n;
    if (n < 8)
        digits &= (UINT64_C(1) << 8 * n) - 1;
    *thousandths = (digits & 255) * 100 + (digits >> 8 & 255) * 10 + (digits >> 16 & 255);
    if (n > 3) {
        uint64_t below = decimal(digits) % 100000;
        *thousandths += below > 50000 || (below == 50000 && *thousandths % 2 == 1);
    }
    while (n == 8 && length < 24) {
        n = leading(word(at + length), &rest);
        length += n;
    }
    return length;
}

/* If a colon ends a key and a number follows that does not stay: where its digits begin, else NULL. They, and what
   follows them, stand before `end`. */
static const uint8_t *number(const uint8_t *colon, const uint8_t *end, const uint8_t *stays, Cut *cut, unsigned *length,
                             int *no_memory)
{
    if (colon[-1] != '"')
        return NULL;
    const uint8_t *at = colon + 1;
    at += *at == ' ';
    if (*at != '-' && (uint8_t)(*at - '0') > 9)
        return NULL;
    uint32_t tail;
    memcpy(&tail, colon - BEFORE, sizeof tail);
    if (stays[(uint32_t)(tail * MIX) >> 20])
        return NULL;
    at += *at == '-';
    uint64_t whole, thousandths = 0;
    unsigned n = integer(at, &whole);
    if (n == 0 || n > DIGITS || (n > 1 && *at == '0'))
        return NULL;
    uint8_t pointed = at[n] == '.', exact = 1;
    if (pointed) {
        unsigned behind = fraction(at + n + 1, &thousandths);
        if (behind == 0)
            return NULL;
        exact = behind < 8;
        n += 1 + behind;
    }
    if (at + n >= end)
        return NULL;
    switch (at[n]) {
    case ',': case '}': case ' ': case '\t': case '\r': case '\n':
        break;
    default:
        return NULL;
    }
    *length = n;
    *no_memory = !(add(&cut->whole, &whole, 8) && add(&cut->thousandths, &thousandths, 8)
                   && add(&cut->pointed, &pointed, 1) && add(&cut->exact, &exact, 1));
    cut->numbers++;
    return at;
}

static uint64_t turned(uint64_t value, int by)
{
    return value << by | value >> (64 - by);
}

/* A hash of n bytes, behind which there are 32 zeros. */
static uint64_t hash_of(const uint8_t *at, size_t n)
{
    const uint64_t a = 0x9E3779B185EBCA87u, b = 0xC2B2AE3D27D4EB4Fu;
    uint64_t lanes[4] = {n, a, b, a ^ b};
    for (size_t i = 0; i < n; i += 32)
        for (int lane = 0; lane < 4; lane++)
            lanes[lane] = turned(lanes[lane] + word(at + i + 8 * lane) * b, 31) * a;
    uint64_t hash = turned(lanes[0], 1) + turned(lanes[1], 7) + turned(lanes[2], 12) + turned(lanes[3], 18);
    hash = (hash ^ hash >> 33) * b;
    return hash ^ hash >> 29;
}

/* A table of twice as many places, if it would be more than half full. */
static int grow(Cut *cut)
{
    size_t n = cut->ends.used / 8, places = cut->places ? 2 * cut->places : 4096;
    if (2 * (n + 1) <= cut->places)
        return 1;
    uint32_t *slots = calloc(places, sizeof *slots);
    if (slots == NULL)
        return 0;
    for (size_t code = 0; code < n; code++) {
        size_t place = entry(&cut->hashes, code) & (places - 1);
        while (slots[place])
            place = (place + 1) & (places - 1);
        slots[place] = (uint32_t)code + 1;
    }
    free(cut->slots);
    cut->slots = slots;
    cut->places = places;
    return 1;
}

/* An event has ended, and its text begins so many bytes into the texts: give it its code. */
static int end_event(Cut *cut, size_t begin)
{
    size_t n = cut->texts.used - begin;
    uint8_t *zeros = room_for(&cut->texts, 32);
    if (zeros == NULL || !grow(cut))
        return 0;
    memset(zeros, 0, 32);
    const uint8_t *text = cut->texts.at + begin;
    uint64_t hash = hash_of(text, n);
    size_t place = hash & (cut->places - 1);
    uint32_t code;
    for (; cut->slots[place]; place = (place + 1) & (cut->places - 1)) {
        code = cut->slots[place] - 1;
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
    cut->slots[place] = code + 1;
    return add(&cut->ends, &end, 8) && add(&cut->hashes, &hash, 8) && add(&cut->codes, &code, 4);
}

static int begin_event(Cut *cut, int64_t start)
{
    return add(&cut->starts, &start, 8) && add(&cut->first, &cut->numbers, 8);
}

/* The pass; 0 if there is no memory. */
static int pass(const uint8_t *data, size_t begin, size_t last, const uint8_t *gap, size_t n, const uint8_t *stays,
                Cut *cut)
{
    size_t piece = begin; /* what stands from here on is not yet among the texts */
    size_t text = 0;      /* where that of the event begins there */
    if (!begin_event(cut, (int64_t)begin))
        return 0;
    for (size_t block = begin + BEFORE; block < last; block += STEP) {
        uint32_t found = places(data + block);
        if (last - block < STEP)
            found &= (UINT32_C(1) << (last - block)) - 1;
        for (; found; found &= found - 1) {
            size_t here = block + lowest(found), end = here, next = here;
            int starts = data[here] == '{', no_memory = 0;
            if (starts) {
                if (here < n || memcmp(data + here - n, gap, n) != 0)
                    continue;
            } else {
                unsigned length;
                const uint8_t *at = number(data + here, data + last, stays, cut, &length, &no_memory);
                if (at == NULL)
                    continue;
                end = (size_t)(at - data);
                next = end + length;
            }
            if (no_memory || !add(&cut->texts, data + piece, end - piece))
                return 0;
            piece = next;
            if (starts) {
                if (!end_event(cut, text) || !begin_event(cut, (int64_t)here))
                    return 0;
                text = cut->texts.used;
            }
        }
    }
    return add(&cut->texts, data + piece, last - piece) && end_event(cut, text) && begin_event(cut, (int64_t)last);
}

static PyObject *texts_of(const Cut *cut)
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
"Cut the events of data[begin:last], of which each begins with a bracket behind `gap`; `stays` has a byte for each\n"
"hash of a key, which is not 0 where its numbers stay. What comes back is that of cutting.Cut, as bytes.");

static PyObject *cut_events(PyObject *self, PyObject *args)
{
    PyObject *of[3], *result = NULL, *texts;
    char *data, *gap, *stays;
    Py_ssize_t size, begin, last, gap_size, stays_size;
    (void)self;
    if (!PyArg_ParseTuple(args, "SnnSS:cut", &of[0], &begin, &last, &of[1], &of[2])
        || PyBytes_AsStringAndSize(of[0], &data, &size) < 0 || PyBytes_AsStringAndSize(of[1], &gap, &gap_size) < 0
        || PyBytes_AsStringAndSize(of[2], &stays, &stays_size) < 0)
        return NULL;
    if (begin < 0 || last < begin || size < last || size - last < PADDING || stays_size != STAYS) {
        PyErr_SetString(PyExc_ValueError, "the events are not within the data with room behind them");
        return NULL;
    }
    if (last >= INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "there are too many events to count them in 32 bits");
        return NULL;
    }
    Cut cut;
    int done;
    memset(&cut, 0, sizeof cut);
    Py_BEGIN_ALLOW_THREADS
    done = pass((const uint8_t *)data, (size_t)begin, (size_t)last, (const uint8_t *)gap, (size_t)gap_size,
                (const uint8_t *)stays, &cut);
    Py_END_ALLOW_THREADS
    if (!done)
        PyErr_NoMemory();
    else if ((texts = texts_of(&cut)) != NULL) {
#define AS_BYTES(buffer) buffer.used ? (const char *)buffer.at : "", (Py_ssize_t)buffer.used
        result = Py_BuildValue("(y#y#Ny#y#y#y#y#)", AS_BYTES(cut.starts), AS_BYTES(cut.codes), texts,
                               AS_BYTES(cut.first), AS_BYTES(cut.whole), AS_BYTES(cut.thousandths),
                               AS_BYTES(cut.pointed), AS_BYTES(cut.exact));
#undef AS_BYTES
    }
    Buffer *used[] = {&cut.starts, &cut.codes, &cut.first, &cut.whole, &cut.thousandths,
                      &cut.pointed, &cut.exact, &cut.texts, &cut.ends, &cut.hashes};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        free(used[i]->at);
    free(cut.slots);
    return result;
}

MODULE(_cutting, "The cutting of chunks in one pass.", "cut", cut_events, cut_doc)
