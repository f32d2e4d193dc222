"""Collectives, sends and receives of two groups of two ranks, each call written down.

Recorded with `torchrun --nproc-per-node 2 tests/data/nccl_calls.py FOLDER` into tests/data/nccl-inspector, with
NCCL_NVLS_ENABLE=0, NCCL_INSPECTOR_ENABLE=1, NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS=500, and as
NCCL_PROFILER_PLUGIN the plugin of NCCL 2.28.9 or 2.30.7. Verbose: with NCCL_INSPECTOR_DUMP_VERBOSE=1,
NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES=0 and NCCL_INSPECTOR_REQUIRE_KERNEL_TIMING=0. With RECORD_KINETO=1 torch.profiler
records the kernels: `calls.csv` has the calls of both ranks, and the duration of each kernel.
"""

import csv
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist

OUT = Path(sys.argv[1])
REPEATS = 3
SIZES = (1 << 10, 64 << 10, 4 << 20, 64 << 20)
"""Bytes of a rank's smaller buffer, float32."""
BURST = 50

rank = int(os.environ["RANK"])
other = 1 - rank
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
pair = dist.new_group([0, 1], group_desc="second pair")
file = (OUT / f"calls-rank{rank}.csv").open("w")
calls = csv.writer(file)


def call(name, operation, sent, received, function, *args, wait=True, **kwargs):
    """Call a function; `sent` and `received` are the bytes of this rank's input and output, `name` is the group's."""
    if wait:
        torch.cuda.synchronize()
    function(*args, **kwargs)
    if wait:
        torch.cuda.synchronize()
    dtype = next((str(arg.dtype).removeprefix("torch.") for arg in args if isinstance(arg, torch.Tensor)), "float32")
    calls.writerow([rank, name, operation, sent, received, dtype])
    if wait:
        time.sleep(0.002)


def tensor(size, dtype=torch.float32):
    return torch.ones(size // dtype.itemsize, dtype=dtype, device=device)


def send(name, group, source, size, small):
    if rank == source:
        call(name, "Send", size, None, dist.send, small, other, group=group)
    else:
        call(name, "Recv", None, size, dist.recv, small, other, group=group)


def both_directions(small, into, group):
    pair = [dist.P2POp(dist.isend, small, other, group), dist.P2POp(dist.irecv, into, other, group)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()


def exchange(name, group):
    for size in SIZES:
        small, large = tensor(size), tensor(2 * size)
        for _ in range(REPEATS):
            call(name, "AllReduce", size, size, dist.all_reduce, small, group=group)
            call(name, "Broadcast", size, size, dist.broadcast, small, 0, group=group)
            call(name, "AllGather", size, 2 * size, dist.all_gather_into_tensor, large, small, group=group)
            call(name, "ReduceScatter", 2 * size, size, dist.reduce_scatter_tensor, small, large, group=group)
            call(name, "Reduce", size, size, dist.reduce, small, 0, group=group)
            small.fill_(1)
            for source in (0, 1):
                send(name, group, source, size, small)
    size = 4 << 20
    small, into = tensor(size), tensor(size)
    for _ in range(REPEATS):
        call(name, "SendRecv", size, size, both_directions, small, into, group)
    for _ in range(REPEATS):
        call(name, "AllToAll", size, size, dist.all_to_all_single, into, small, group=group)
    size = 256 << 10
    for dtype in (torch.bfloat16, torch.uint8):
        odd = tensor(size, dtype)
        for _ in range(REPEATS):
            call(name, "AllReduce", size, size, dist.all_reduce, odd, group=group)
            send(name, group, 0, size, odd)
    # Rank 1 is late by 20 ms: rank 0 waits in the kernel.
    size = 2 << 20
    late = tensor(size)
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        if rank == 1:
            time.sleep(0.02)
        call(name, "AllReduce", size, size, dist.all_reduce, late, group=group)
    # Many at once, without a pause.
    size = 64 << 10
    quick = tensor(size)
    for _ in range(BURST):
        call(name, "AllReduce", size, size, dist.all_reduce, quick, group=group, wait=False)
    torch.cuda.synchronize()


with torch.profiler.profile() if os.environ.get("RECORD_KINETO") == "1" else nullcontext() as profiler:
    exchange("world", dist.group.WORLD)
    exchange("second pair", pair)
file.close()
time.sleep(0.3)  # The records of the last interval would be lost.
if profiler is not None:
    profiler.export_chrome_trace(str(OUT / f"kineto-rank{rank}.json.gz"))
dist.destroy_process_group()
