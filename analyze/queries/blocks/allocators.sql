-- The allocators that memory events are of.
-- @macro is_allocator(chosen, device_type)  whether an allocator is one that a query was asked for: all, cpu, gpu (all
-- but the CPU's), cuda (torch calls AMD's GPUs so too, though its trace says hip), hip or xpu.
CREATE MACRO is_allocator(chosen, device_type) AS CASE chosen
    WHEN 'all' THEN true
    WHEN 'gpu' THEN device_type NOT IN ('cpu', 'mkldnn')
    WHEN 'cuda' THEN device_type IN ('cuda', 'hip')
    ELSE device_type = chosen
END;
