-- What a recording says of itself, per rank: whether Python functions were recorded (python_stacks).
-- @view recording_facts  a row is a rank.
-- @column run_id id             The run.
-- @column rank index            Process rank.
-- @column run_group index       Group of runs (--by); NULL without.
-- @column python_stacks bool    Whether Python functions were recorded.
CREATE VIEW recording_facts AS
WITH _stacks AS (
    SELECT run_id, rank, bool_or(origin = 'python_function') AS python_stacks FROM ranges GROUP BY run_id, rank
)
SELECT run_id, rank, g.run_group, coalesce(python_stacks, false) AS python_stacks
FROM run_groups g LEFT JOIN _stacks USING (run_id, rank);

-- @macro host_time_note(python_stacks)  what to bear in mind of host times; NULL if nothing.
CREATE MACRO host_time_note(python_stacks) AS
    CASE WHEN python_stacks THEN 'recorded with Python stacks, which make host time longer' END;
