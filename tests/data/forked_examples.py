"""Runs examples under torch.profiler, each rank forked from this process: torch is imported once for all of them.

forked_examples.py FOLDER [PROCESSES EXAMPLE [ARGUMENTS ...] -- ...]: the trace of rank R of the
N-th example is FOLDER/N/rankR.json. Exits with 1 if one fails. OMP_NUM_THREADS says how many threads each has: the
pool that torch.set_num_threads makes before a fork is broken behind it.
"""

import os
import runpy
import socket
import sys
import traceback
from pathlib import Path

import torch._dynamo  # noqa: F401  what optimizers import
from torch.profiler import profile


def run(trace: Path, rank: int, processes: int, port: int, arguments: list[str]) -> None:
    """Run an example as one rank of so many, as torchrun starts it."""
    where = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in where.items()})
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).parent))
    with profile(record_shapes=True) as profiler:
        runpy.run_path(arguments[0], run_name="__main__")
    profiler.export_chrome_trace(str(trace))


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def main() -> int:
    """Run them one after the other."""
    folder, failed = Path(sys.argv[1]), 0
    given = iter(sys.argv[2:])
    for number, processes in enumerate(given):
        arguments = list(iter(lambda: next(given, "--"), "--"))
        (folder / str(number)).mkdir(parents=True)
        port, children = free_port(), []
        for rank in range(int(processes)):
            if child := os.fork():
                children.append(child)
                continue
            try:
                run(folder / str(number) / f"rank{rank}.json", rank, int(processes), port, arguments)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            sys.stdout.flush()
            os._exit(0)
        failed |= any([os.waitpid(child, 0)[1] for child in children])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
