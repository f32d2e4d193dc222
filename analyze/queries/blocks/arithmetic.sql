-- Shares and other small sums. Times are int64 ns; a share is computed from integers and divided once.

-- @macro pct(part, whole)  100 * part / whole as DOUBLE; NULL where the whole is 0.
CREATE MACRO pct(part, whole) AS CASE WHEN whole = 0 THEN NULL ELSE 100.0::DOUBLE * part / whole END;
