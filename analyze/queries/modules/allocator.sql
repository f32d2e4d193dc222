-- The caching allocator as memory snapshots of torch.cuda.memory record it: who holds which bytes, and when.
-- @use arithmetic, program_frames

-- @view allocator_totals  a row is an event that changes the bytes that the program holds, or that the allocator has
--   reserved on a device.
-- @columns run_group, run_id, rank
-- @column device index            Device.
-- @column event index             Number in the history of the device.
-- @columns start_ns
-- @column action text             alloc, free_requested, or one of a segment.
-- @column addr id                 Address.
-- @column change_bytes B          Requested bytes; negative for a free; 0 for a segment.
-- @column stream id               Stream.
-- @column stack id                Stack; NULL if none was recorded.
-- @column metadata text           The program's text of its metadata; NULL if none was recorded.
-- @column held_bytes B            Requested bytes that the program holds after it, computed from the history's end.
-- @column reserved_bytes B        Bytes of all segments after it, computed from the history's end.
CREATE VIEW allocator_totals AS
WITH _changes AS (
    SELECT
        *, CASE action WHEN 'alloc' THEN bytes WHEN 'free_requested' THEN -bytes ELSE 0 END AS change_bytes,
        CASE
            WHEN action IN ('segment_alloc', 'segment_map') THEN bytes
            WHEN action IN ('segment_free', 'segment_unmap') THEN -bytes
            ELSE 0
        END AS segment_change
    FROM allocator_events
    WHERE action IN ('alloc', 'free_requested') OR starts_with(action, 'segment_')
),
_held AS (
    SELECT run_id, rank, device, sum(requested_bytes) AS held_at_end
    FROM allocator_blocks
    WHERE state = 'active_allocated'
    GROUP BY run_id, rank, device
),
_reserved AS (
    SELECT run_id, rank, device, sum(segment_bytes) AS reserved_at_end
    FROM (SELECT DISTINCT run_id, rank, device, segment_addr, segment_bytes FROM allocator_blocks)
    GROUP BY run_id, rank, device
)
SELECT
    c.run_group, c.run_id, c.rank, c.device, event, start_ns, action, addr, change_bytes, stream, stack, metadata,
    (coalesce(held_at_end, 0) - coalesce(sum(change_bytes) OVER later, 0))::BIGINT AS held_bytes,
    (coalesce(reserved_at_end, 0) - coalesce(sum(segment_change) OVER later, 0))::BIGINT AS reserved_bytes
FROM _changes c
LEFT JOIN _held h ON h.run_id = c.run_id AND h.rank = c.rank AND h.device = c.device
LEFT JOIN _reserved r ON r.run_id = c.run_id AND r.rank = c.rank AND r.device = c.device
WINDOW later AS (
    PARTITION BY c.run_id, c.rank, c.device ORDER BY event ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
);

-- @view allocator_changes  a row is a change of the bytes that the program holds: an allocation or a free.
-- @column * of allocator_totals
CREATE VIEW allocator_changes AS
SELECT * FROM allocator_totals WHERE action IN ('alloc', 'free_requested');

-- @view allocator_moments  a row is a moment of a device whose live bytes are of interest.
-- @columns run_id, rank
-- @column device index            Device.
-- @column moment text             peak, oom (the last one) or snapshot (the end).
-- @column at_event index          The last event before it, or itself.
-- @columns start_ns
CREATE VIEW allocator_moments AS
SELECT
    run_id, rank, device, 'peak' AS moment, arg_min(event, (-held_bytes, event)) AS at_event,
    arg_min(start_ns, (-held_bytes, event)) AS start_ns
FROM allocator_changes
GROUP BY run_id, rank, device
UNION ALL
SELECT run_id, rank, device, 'oom', max(event), arg_max(start_ns, event)
FROM allocator_events
WHERE action = 'oom'
GROUP BY run_id, rank, device
UNION ALL
SELECT b.run_id, b.rank, b.device, 'snapshot', coalesce(max(event), -1), max(start_ns)
FROM (SELECT DISTINCT run_id, rank, device FROM allocator_blocks) b
LEFT JOIN allocator_events e ON e.run_id = b.run_id AND e.rank = b.rank AND e.device = b.device
GROUP BY b.run_id, b.rank, b.device;

-- @view allocator_owners  a row is a stack of a memory snapshot: the line of the program that requested memory.
-- @columns run_id, rank
-- @column stack id                The stack.
-- @column frame text              FILE:LINE FUNCTION of the innermost Python frame outside of installed packages, else
--                                 of the innermost Python frame, else the backward function, else the operator.
-- @column path text               The program's Python frames, outermost first, separated by ` > `.
-- @column module_path text        The frames that a call of an nn.Module called, outermost first; NULL if there are
--                                 none.
-- @column category text           parameter, input, activation, gradient, optimizer_state or other: from the
--                                 innermost Python frame of torch that has a category. C++ frames are not in order with
--                                 Python frames: a frame of the autograd engine means gradient if no Python frame does.
CREATE VIEW allocator_owners AS
WITH _frames AS (
    SELECT
        *, frame_text(file, line, function) AS text,
        ends_with(file, '.py') AS is_python,
        regexp_extract(function, '^torch::autograd::generated::(\w+)::apply', 1) AS backward,
        regexp_extract(function, '^at::_ops::(\w+)::call', 1) AS operator,
        starts_with(function, 'torch::autograd::Engine::') AS is_engine,
        ends_with(file, '.py') AND is_own_frame(file) AS is_own,
        regexp_extract(replace(file, '\', '/'), '/torch/((?:nn|optim|autograd|utils/data)/.*)', 1) AS torch_file,
        function IN ('_call_impl', 'inner') AND torch_file = 'nn/modules/module.py' AS is_call
    FROM allocator_frames
),
_python AS (
    SELECT
        *, lead(is_call) OVER (PARTITION BY run_id, rank, stack ORDER BY depth) AND NOT is_call AS is_module,
        CASE
            WHEN is_call THEN 'activation'
            WHEN starts_with(torch_file, 'optim/') THEN 'optimizer_state'
            WHEN starts_with(torch_file, 'utils/data/') THEN 'input'
            WHEN torch_file IN ('autograd/__init__.py', 'autograd/graph.py') THEN 'gradient'
            WHEN starts_with(torch_file, 'nn/') AND function IN ('__init__', '_apply', 'reset_parameters')
                THEN 'parameter'
        END AS category
    FROM _frames
    WHERE is_python
),
_modules AS (
    SELECT
        run_id, rank, stack, string_agg(text, ' > ' ORDER BY depth DESC) FILTER (is_module) AS module_path,
        arg_min(category, depth) FILTER (category IS NOT NULL) AS category
    FROM _python
    GROUP BY run_id, rank, stack
)
SELECT
    run_id, rank, stack,
    coalesce(
        arg_min(text, depth) FILTER (is_own), arg_min(text, depth) FILTER (is_python),
        -- Threads of the backward pass have no Python frames.
        arg_max(backward, depth) FILTER (backward <> ''), arg_max(operator, depth) FILTER (operator <> '')
    ) AS frame,
    coalesce(
        string_agg(text, ' > ' ORDER BY depth DESC) FILTER (is_own),
        string_agg(text, ' > ' ORDER BY depth DESC) FILTER (is_python)
    ) AS path,
    any_value(module_path) AS module_path,
    coalesce(any_value(category), CASE WHEN bool_or(is_engine) THEN 'gradient' ELSE 'other' END) AS category
FROM _frames LEFT JOIN _modules USING (run_id, rank, stack)
GROUP BY run_id, rank, stack;

-- @view allocator_requests  a row is an allocation that the history or the state at its end has, with the
--   program's lines that requested it.
-- @columns run_group, run_id, rank
-- @column device index            Device.
-- @column event index             The event that allocated it; -1 if it is older than the history.
-- @columns start_ns
-- @column freed_event index       The event that freed it; NULL if none did.
-- @column addr id                 Address.
-- @column bytes B                 Requested bytes.
-- @column stream text             `stream` and its number, or (not recorded).
-- @column stack id                Who allocated it; NULL if it was not recorded.
-- @column metadata text           The program's text of its metadata; NULL if none was recorded.
-- @column frame text              As in `allocator_owners`, or (not recorded).
-- @column path text               As in `allocator_owners`, or (not recorded).
-- @column module text             The metadata, in which `collect` names the nn.Module; else `module_path`; else
--                                 (no module), or (not recorded) without a stack.
-- @column layers text             The module; one that the metadata names up to its first number: GPT.layers of
--                                 GPT.layers.3.attention.
-- @column category text           As in `allocator_owners`, or (not recorded).
-- @column pool text               Memory pool; (not recorded) if it was freed: the snapshot lists the segments of its
--                                 end, and a freed address may be in another segment by then.
CREATE VIEW allocator_requests AS
WITH _paired AS (
    SELECT
        *, lag(action) OVER at_address AS previous_action,
        CASE WHEN lead(action) OVER at_address = 'free_requested' THEN lead(event) OVER at_address END AS next_free
    FROM allocator_changes
    WINDOW at_address AS (PARTITION BY run_id, rank, device, addr ORDER BY event)
),
_lifetimes AS (
    SELECT
        run_group, run_id, rank, device, event, start_ns, next_free AS freed_event, addr, change_bytes AS bytes, stream,
        stack, metadata
    FROM _paired
    WHERE action = 'alloc'
    UNION ALL BY NAME
    SELECT run_group, run_id, rank, device, -1 AS event, event AS freed_event, addr, -change_bytes AS bytes, stream
    FROM _paired
    WHERE action = 'free_requested' AND previous_action IS DISTINCT FROM 'alloc'
    UNION ALL BY NAME
    SELECT b.run_group, b.run_id, b.rank, b.device, -1 AS event, b.addr, b.requested_bytes AS bytes, b.stream, b.stack
    FROM allocator_blocks b
    ANTI JOIN (
        FROM _paired WHERE action = 'alloc' AND next_free IS NULL
    ) p ON p.run_id = b.run_id AND p.rank = b.rank AND p.device = b.device AND p.addr = b.addr
    WHERE b.state = 'active_allocated'
),
_segments AS (
    SELECT DISTINCT run_id, rank, device, segment_addr, segment_addr + segment_bytes AS end_addr, pool
    FROM allocator_blocks
)
SELECT
    l.* REPLACE (coalesce('stream ' || l.stream, '(not recorded)') AS stream),
    coalesce(frame, '(not recorded)') AS frame, coalesce(path, '(not recorded)') AS path,
    coalesce(metadata, module_path, CASE WHEN l.stack IS NULL THEN '(not recorded)' ELSE '(no module)' END) AS module,
    coalesce(regexp_replace(metadata, '\.\d.*$', ''), module) AS layers,
    coalesce(category, '(not recorded)') AS category,
    CASE WHEN l.freed_event IS NULL AND l.addr < g.end_addr THEN g.pool ELSE '(not recorded)' END AS pool
FROM _lifetimes l
LEFT JOIN allocator_owners o ON o.run_id = l.run_id AND o.rank = l.rank AND o.stack = l.stack
ASOF LEFT JOIN _segments g
    ON g.run_id = l.run_id AND g.rank = l.rank AND g.device = l.device AND l.addr >= g.segment_addr;

-- @view exhausted_devices  a row is a rank whose GPU memory ran out: of its devices the one that held most then.
-- @columns run_id, rank
-- @column device index            Device.
-- @column held_bytes B            Requested bytes that the program held.
-- @column holders text            A phrase: who held most of them, by the layers where the snapshot names modules, else
--                                 by the line of the program.
CREATE VIEW exhausted_devices AS
WITH _held AS (
    SELECT
        r.run_id, r.rank, r.device, r.frame, CASE WHEN r.metadata IS NOT NULL THEN r.layers ELSE r.frame END AS owner,
        CASE r.category
            WHEN 'optimizer_state' THEN 'optimizer state ' WHEN 'other' THEN '' WHEN '(not recorded)' THEN ''
            ELSE r.category || 's '
        END AS what,
        sum(r.bytes) AS bytes
    FROM allocator_requests r JOIN allocator_moments m USING (run_id, rank, device)
    WHERE m.moment = 'oom' AND r.event <= m.at_event AND coalesce(r.freed_event > m.at_event, true)
    GROUP BY ALL
),
_owners AS (
    SELECT
        run_id, rank, device, owner, what, sum(bytes) AS owned_bytes, arg_min(frame, (-bytes, frame)) AS frame,
        sum(sum(bytes)) OVER (PARTITION BY run_id, rank, device)::BIGINT AS held_bytes
    FROM _held
    GROUP BY run_id, rank, device, owner, what
)
SELECT
    run_id, rank, device, held_bytes,
    CASE
        WHEN owner = '(not recorded)' AND owned_bytes = held_bytes
            THEN printf('GPU %d: %s held; collect run --memory-history records by whom', device, held)
        ELSE printf(
            'GPU %d: %.1f %% of the %s held are %sof %s', device, pct(owned_bytes, held_bytes), held, what,
            concat_ws(', ', owner, nullif(frame, owner))
        )
    END AS holders
FROM (
    SELECT
        *, CASE WHEN held_bytes < 1 << 30 THEN printf('%.1f MiB', held_bytes / 1048576)
            ELSE printf('%.1f GiB', held_bytes / 1073741824) END AS held
    FROM _owners
)
QUALIFY row_number() OVER (PARTITION BY run_id, rank ORDER BY held_bytes DESC, device, owned_bytes DESC, owner) = 1;
