-- What torch.profiler calls a copy or a fill.
CREATE MACRO memcpy_name(kind, src, dst) AS
    'Memcpy ' || CASE WHEN kind = 'Unknown' THEN '' ELSE kind END
    || CASE WHEN src IS NULL THEN '' ELSE ' (' || src || ' -> ' || dst || ')' END;
CREATE MACRO memset_name(dst) AS 'Memset' || CASE WHEN dst IS NULL THEN '' ELSE ' (' || dst || ')' END;
