/* Places of events, sorted: what stands in a file is nearly in order, so each run that is so already is taken as it is. */

#ifndef TRACEQUARRY_SORTED_RUNS_H
#define TRACEQUARRY_SORTED_RUNS_H

#include "../../compiled.h"

/* Whether event b stands before event a, which is before it in the file. Named where it is handed over, it is inlined. */
typedef int IsBefore(const void *events, int64_t b, int64_t a);

/* Sort n places of events; `spare` has room for as many. 0 if there is no memory.

   A lane holds a few runs that are in order, those of each table that its events come from. */
static inline int sort_runs(const void *events, IsBefore *is_before, int64_t *places, size_t n, int64_t *spare)
{
    size_t count = 0, room = 64;
    size_t *ends = malloc(room * sizeof *ends);
    if (ends == NULL)
        return 0;
    for (size_t i = 1; i <= n; i++)
        if (i == n || is_before(events, places[i], places[i - 1])) {
            if (count == room) {
                size_t *more = realloc(ends, 2 * room * sizeof *ends);
                if (more == NULL) {
                    free(ends);
                    return 0;
                }
                ends = more;
                room *= 2;
            }
            ends[count++] = i;
        }
    int64_t *from = places, *to = spare;
    while (count > 1) {
        size_t made = 0, begin = 0;
        for (size_t k = 0; k < count; k += 2) {
            size_t middle = ends[k], end = k + 1 < count ? ends[k + 1] : middle;
            size_t a = begin, b = middle, out = begin;
            while (a < middle && b < end)
                to[out++] = is_before(events, from[b], from[a]) ? from[b++] : from[a++];
            memcpy(to + out, from + a, (middle - a) * sizeof *to);
            out += middle - a;
            memcpy(to + out, from + b, (end - b) * sizeof *to);
            ends[made++] = end;
            begin = end;
        }
        count = made;
        int64_t *other = from;
        from = to;
        to = other;
    }
    if (from != places)
        memcpy(places, from, n * sizeof *places);
    free(ends);
    return 1;
}

#endif
