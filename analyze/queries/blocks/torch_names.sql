-- Names as torch.profiler writes them.
-- @macro memcpy_name(kind, src, dst)  what torch.profiler calls a copy.
CREATE MACRO memcpy_name(kind, src, dst) AS
    'Memcpy ' || CASE WHEN kind = 'Unknown' THEN '' ELSE kind END
    || CASE WHEN src IS NULL THEN '' ELSE ' (' || src || ' -> ' || dst || ')' END;

-- @macro memset_name(dst)  what torch.profiler calls a fill.
CREATE MACRO memset_name(dst) AS 'Memset' || CASE WHEN dst IS NULL THEN '' ELSE ' (' || dst || ')' END;
