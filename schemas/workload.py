"""The options of a workload: model, data, training and devices.

To add one, add a field here and use it in collect/workload/model.py. `collect run --help`, the keys of a sweep's plan,
`workload` in run.json, the columns of `runs` and what `scaling` keeps constant derive from the field. The order of the
fields is that of the columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec

from schemas.option_declaration import LARGEST_INT64, Option, RunColumn, declared

WORKLOAD, PARALLEL = "Workload", "Devices"

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Optimizer = Literal["sgd", "adam", "adamw", "rmsprop", "adagrad"]
Parallelism = Literal["none", "dp", "ddp"]


def data_kind(data: str) -> str:
    """A data source without its path; generated ones keep their number of images."""
    return data if data.startswith("fake-") else data.partition(":")[0]


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to train, and how. Field names are the option names with `_` for `-`."""

    model: Annotated[
        str | None,
        Option("A torchvision classification model: resnet18, vgg16 ...", WORKLOAD, column=RunColumn("model name")),
    ] = None
    batch_size: Annotated[
        int,
        Option(
            "Images per step; per process under ddp.",
            WORKLOAD,
            least=1,
            column=RunColumn(
                "per step over all GPUs (dp), per process (ddp)", type="int64", unit="images", varies=True
            ),
        ),
    ] = 32
    gpus: Annotated[
        int,
        Option(
            "GPUs to train on; with ddp on the CPU, processes.",
            PARALLEL,
            least=1,
            column=RunColumn("GPUs that train", varies=True),
        ),
    ] = 1
    """Once the device is known, 0 for one process on the CPU."""
    parallel: Annotated[
        Parallelism,
        Option(
            "none, dp (nn.DataParallel, one process) or ddp (one process per GPU).",
            PARALLEL,
            column=RunColumn("{choices}", name="parallelism", varies=True),
        ),
    ] = "none"
    precision: Annotated[
        Precision,
        Option("{choices} (the last two by autocast).", WORKLOAD, column=RunColumn("{choices}")),
    ] = "fp32"
    data: Annotated[
        str,
        Option(
            "synthetic, fake-jpeg, fake-cifar100[:IMAGES], fake-food101[:IMAGES], cifar100:PATH, food101:PATH or "
            "imagefolder:PATH.",
            WORKLOAD,
            column=RunColumn("data source", name="dataset"),
            recorded=data_kind,
        ),
    ] = "synthetic"
    image_size: Annotated[
        int | None,
        Option(
            "Side of the input in pixels. Default: the model's.",
            WORKLOAD,
            least=1,
            column=RunColumn("side of the square input", unit="pixels"),
        ),
    ] = None
    """None: the size that the model's published weights were evaluated on."""
    steps: Annotated[
        int,
        Option(
            "Profiled steps.",
            WORKLOAD,
            least=1,
            column=RunColumn("profiled steps; for the user's program those that were counted, else NULL", varies=True),
        ),
    ] = 5
    warmup: Annotated[int, Option("Warm-up steps before them.", WORKLOAD, least=0)] = 3
    optimizer: Annotated[Optimizer, Option("{choices}.", WORKLOAD, column=RunColumn("optimizer"))] = "sgd"
    schedule: Annotated[
        Literal["none", "cosine"],
        Option(
            "Learning rate: {choices} (annealed over the run).", WORKLOAD, column=RunColumn("learning-rate schedule")
        ),
    ] = "none"
    channels_last: Annotated[bool, Option("NHWC memory format.", WORKLOAD, column=RunColumn("NHWC memory format"))] = (
        False
    )
    compile: Annotated[
        bool,
        Option("torch.compile the model.", WORKLOAD, column=RunColumn("torch.compile", name="compiled")),
    ] = False
    freeze_features: Annotated[
        bool,
        Option(
            "Transfer learning: only the classifier trains.", WORKLOAD, column=RunColumn("only the classifier trains")
        ),
    ] = False
    workers: Annotated[
        int,
        Option(
            "Data loader processes; synthetic data needs none.",
            WORKLOAD,
            least=0,
            column=RunColumn("data loader processes"),
        ),
    ] = 4
    seed: Annotated[
        int,
        Option(
            "Seed of all random generators.",
            WORKLOAD,
            least=0,
            most=LARGEST_INT64,
            column=RunColumn("random seed", type="int64", varies=True),
        ),
    ] = 0
    device: Annotated[
        Literal["cuda", "cpu"] | None,
        Option(
            "{choices}. Default: cuda if there is a GPU.",
            PARALLEL,
            column=RunColumn("{choices}", name="device_type"),
        ),
    ] = None


OPTIONS = declared(Workload)

if TYPE_CHECKING:
    RecordedWorkload: TypeAlias = Any
else:
    RecordedWorkload = msgspec.defstruct(
        "RecordedWorkload",
        [(o.name, o.kind | None, None) for o in OPTIONS.values()],
        kw_only=True,
        namespace={"__doc__": "The options of Workload in a run; None where unknown."},
    )


def recorded(workload: Workload) -> RecordedWorkload:
    """Convert the options to what run.json contains."""
    values = {o.name: (getattr(workload, o.name), o.option.recorded) for o in OPTIONS.values()}
    return RecordedWorkload(**{name: part(value) if part else value for name, (value, part) in values.items()})


class WorkloadColumn(NamedTuple):
    """A column of `runs` that holds a workload option."""

    name: str
    type: str
    unit: str
    doc: str
    option: str
    varies: bool


_TYPES = {bool: "bool", int: "int32", str: "string"}

COLUMNS = tuple(
    WorkloadColumn(c.name or o.name, c.type or _TYPES[o.kind], c.unit, o.text(c.doc), o.name, c.varies)
    for o in OPTIONS.values()
    if (c := o.option.column)
)
"""In the order of the columns of `runs`."""


def column_values(workload: RecordedWorkload) -> dict[str, Any]:
    """Return the values of the columns of `runs`, by name."""
    return {c.name: getattr(workload, c.option) for c in COLUMNS}


def limits_problem(workload: RecordedWorkload) -> str | None:
    """Describe a number that is out of range; None if there is none."""
    for o in OPTIONS.values():
        value = getattr(workload, o.name)
        if isinstance(value, int) and not 0 <= value <= o.option.most:
            return f"{o.name} is {value}, which is not between 0 and {o.option.most}"
    return None
