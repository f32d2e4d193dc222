"""The profiled command of an Nsight Systems report, and what its environment says about ranks and nodes."""

from __future__ import annotations

import re

from analyze.sources.nsys.open_export import Tables, rows
from analyze.sources.text_lines import whole

_LAUNCHERS = (
    (("RANK",), ("WORLD_SIZE",)),  # torchrun, deepspeed, accelerate
    (("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",)),
    (("MV2_COMM_WORLD_RANK", "MVP_COMM_WORLD_RANK"), ("MV2_COMM_WORLD_SIZE", "MVP_COMM_WORLD_SIZE")),  # MVAPICH
    (("PALS_RANKID",), ("PALS_SIZE",)),
    (("PMIX_RANK",), ()),
    (("PMI_RANK",), ("PMI_SIZE",)),  # Hydra (MPICH, Intel MPI), Cray
    (("SLURM_PROCID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")),
)
"""Environment variables with the rank and the number of ranks, by launcher. torchrun and mpirun may run within srun."""

_NODE_OPTION = re.compile(r"--(nnodes|node[-_]rank)(?:=|\s+)([0-9]{1,6})(?=\s|$)")
"""torchrun's options for the number of nodes and the number of this node; not a range of nodes (1:4)."""

_ENVIRONMENT = re.compile(r'(\w+)="?(.*?)"?$', re.DOTALL)
_ARGUMENT = re.compile(r"ARGUMENT_([0-9]{1,6})")


class Capture:
    """The profiled command and its environment, from META_DATA_CAPTURE."""

    def __init__(self, tables: Tables):
        arguments: dict[int, str] = {}
        self.environment: dict[str, str] = {}
        program = None
        for row in rows(tables, "META_DATA_CAPTURE", ["name", "value"]):
            key, value = (row["name"] or "").partition(":")[2], row["value"] or ""
            if key == "ENVIRONMENT_VARIABLE" and (match := _ENVIRONMENT.match(value)):
                self.environment[match.group(1)] = match.group(2)
            elif key == "COMMAND":
                program = program or value
            elif match := _ARGUMENT.fullmatch(key):
                arguments[int(match.group(1))] = value
        self.command = " ".join([program, *(arguments[i] for i in sorted(arguments))]) if program else None

    def rank_and_world_size(self) -> tuple[int | None, int | None]:
        """Return rank and number of ranks from the variables of a launcher; None where unknown."""
        found = [(self.number(*ranks), self.number(*sizes)) for ranks, sizes in _LAUNCHERS]
        rank = next((r for r, _ in found if r is not None), None)
        # The size may be another launcher's, if that agrees on the rank: PALS with PMI_SIZE, PMIX_RANK within srun.
        return rank, next((size for r, size in found if r == rank is not None and size is not None), None)

    def nodes(self) -> tuple[int, int] | None:
        """Return the number of the node and how many nodes there are, from the options of torchrun."""
        options = dict(_NODE_OPTION.findall((self.command or "").replace("--node_rank", "--node-rank")))
        if len(options) < 2:
            return None
        return int(options["node-rank"]), int(options["nnodes"])

    def visible_gpus(self, tables: Tables) -> list[int]:
        """Return the ids (TARGET_INFO_GPU) of the GPUs in CUDA_VISIBLE_DEVICES: CUDA device 0 is the first one.

        Empty if it is unset or not understood. A program that sets the variable itself is not known.
        """
        gpus = [gpu for gpu in rows(tables, "TARGET_INFO_GPU", ["id", "cuDevice", "uuid"]) if gpu["id"] is not None]
        found: list[int] = []
        for entry in self.environment.get("CUDA_VISIBLE_DEVICES", "").split(","):
            number, uuid = parse_number(entry.strip()), entry.strip().removeprefix("GPU-")
            if number is not None:
                named = [gpu["id"] for gpu in gpus if gpu["cuDevice"] == number]
            else:
                named = [gpu["id"] for gpu in gpus if uuid and (gpu["uuid"] or "").startswith(uuid)]
            if len(named) != 1:
                return []
            found += named
        return found

    def number(self, *variables: str) -> int | None:
        """Return the value of the first of some environment variables that is a number."""
        numbers = (parse_number(self.environment.get(v, "")) for v in variables)
        return next((n for n in numbers if n is not None), None)


def parse_number(text: str) -> int | None:
    """Parse a number that is not negative; None if it is something else."""
    try:
        number = whole(text, 32)
    except ValueError:
        return None
    return number if number >= 0 else None
