-- Percentages, rates and other arithmetic. Times are int64 ns; a share is computed from integers and divided once.

-- @macro pct(part, whole)  100 * part / whole as DOUBLE; NULL where the whole is 0.
CREATE MACRO pct(part, whole) AS CASE WHEN whole = 0 THEN NULL ELSE 100.0::DOUBLE * part / whole END;

-- @macro at_least_0(x)  x, or 0 where it is less. NULL where it is not known: greatest() leaves NULL out.
CREATE MACRO at_least_0(x) AS CASE WHEN x < 0 THEN 0 ELSE x END;

-- @macro mean_over(value, dur_ns)  mean of a value, weighted by time; NULL where none is known.
CREATE MACRO mean_over(value, dur_ns) AS
    fsum(value * dur_ns) / nullif(sum(dur_ns) FILTER (value IS NOT NULL), 0)::DOUBLE;

-- @macro bytes_per_ns(bytes, dur_ns)  how fast bytes were moved, over the rows that have a size and a duration; NULL
-- where none has both.
CREATE MACRO bytes_per_ns(bytes, dur_ns) AS
    sum(bytes) FILTER (dur_ns IS NOT NULL)::DOUBLE / nullif(sum(dur_ns) FILTER (bytes IS NOT NULL), 0);

-- @macro variation_pct(ns)  standard deviation (of all, not of a sample) of whole numbers as a share of their mean, in
-- %; NULL where that is 0, or one of them is beyond 10^15. From whole sums: one of floating point depends on which
-- thread added what. The squares are of the distances from the mean rounded down, so that nothing cancels.
CREATE MACRO variation_pct(ns) AS CASE WHEN min(ns) > -1000000000000000 AND max(ns) < 1000000000000000 THEN pct(
    sqrt((
        sum(CASE WHEN ns BETWEEN -1000000000000000 AND 1000000000000000 THEN ns::HUGEINT * ns END)
        - sum(ns) // count(ns) * (2 * sum(ns) - count(ns) * (sum(ns) // count(ns)))
        - (sum(ns) % count(ns)) ** 2 / count(ns)
    ) / count(ns)),
    avg(ns)
) END;
