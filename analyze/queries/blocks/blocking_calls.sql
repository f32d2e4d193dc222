-- CUDA calls that return only when the GPU, a stream or an event is done, and copies that wait for themselves.
CREATE VIEW blocking_calls AS
SELECT run_id, rank, name, start_ns, start_ns + dur_ns AS end_ns
FROM cuda_calls
WHERE api <> 'sync' AND (
    regexp_matches(
        name,
        '^(cudaDeviceSynchronize|cudaThreadSynchronize|cuCtxSynchronize|cudaStreamSynchronize'
        || '|cuStreamSynchronize|cudaEventSynchronize|cuEventSynchronize)'
    )
    OR regexp_matches(name, '^(cudaMemcpy|cuMemcpy)') AND name NOT ILIKE '%async%'
);
