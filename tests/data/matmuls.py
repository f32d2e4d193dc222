"""One matrix product per precision, M x K times K x N, for Nsight Compute to count: 2 * M * N * K FLOPs each.

Recorded with `collect run --profiler ncu -- python tests/data/matmuls.py` into sample_traces/matmuls.
"""

import torch

M, N, K = 1024, 2048, 512
"""Multiples of every tile size that cuBLAS uses for them, so that padding adds little."""

for name, dtype, tf32 in (
    ("fp32", torch.float32, False),
    ("tf32", torch.float32, True),
    ("bf16", torch.bfloat16, False),
    ("fp16", torch.float16, False),
):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    a, b = torch.ones(M, K, device="cuda", dtype=dtype), torch.ones(K, N, device="cuda", dtype=dtype)
    # Every entry is a sum of K ones.
    assert (a @ b)[0, 0].item() == K, name
