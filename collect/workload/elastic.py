"""`python -m collect.workload.elastic SPEC.json`: starts the processes of a ddp run with torch's elastic launcher.

Uses the launcher's API instead of the `torchrun` command, because it returns the exit code of each rank.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import msgspec

from collect.workload.spec import WorkerSpec


def main() -> int:
    """Start one worker per rank and wait for them; return 0 only if all exit with 0."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    path = sys.argv[1]
    spec = msgspec.json.decode(Path(path).read_bytes(), type=WorkerSpec)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=spec.options.world_size,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        # The default looks up the host's full name, which many containers cannot resolve.
        local_addr="127.0.0.1",
        max_restarts=0,
    )
    try:
        elastic_launch(config, sys.executable)("-P", "-m", "collect.workload.worker", path)
    except ChildFailedError as e:
        codes = {rank: failure.exitcode for rank, failure in e.failures.items()}
        (Path(spec.scratch) / "exit-codes.json").write_bytes(msgspec.json.encode(codes))
        return 1
    except SignalException as e:
        return 128 + int(e.sigval)
    return 0


if __name__ == "__main__":
    sys.exit(main())
