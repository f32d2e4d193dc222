"""Convert the counters of an Nsight Systems export: metrics of GPUs and of the network, page faults."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from analyze.sources.nsys.capture import Capture
from analyze.sources.nsys.names import Names
from analyze.sources.nsys.open_export import Tables, rows
from analyze.sources.nsys.rank_processes import pid_of, used_devices
from analyze.sources.nsys.rows import Built, EventTable, Owners, Skipped, record_batch, times
from analyze.sources.nsys.values import Columns, filtered

METRICS = "GPU_METRICS"
_UNSIGNED = (1 << 64) - 1
_GPU_BITS = 0xFF
"""Bits of a typeId that are the number of the GPU."""

_LEAST_HZ = 100_000
"""No clock is that many MHz."""

NETWORK = ("NET_NIC_METRIC", "NET_IB_SWITCH_METRIC")
_NUMBER = r"^-?\d{1,18}(\.\d{1,18})?$"


def _gpu_faults(batch: Columns, names: Names, process: int) -> Built:
    value = batch["numberOfPageFaults"]
    return times(batch) | {"name": "GPU page faults", "device": batch["deviceId"], "value": value}


def _cpu_faults(batch: Columns, names: Names, process: int) -> Built:
    return {"start_ns": batch["start"], "name": "CPU page faults", "value": pa.repeat(1, len(batch["start"]))}


FAULT_TABLES = (
    EventTable(
        "CUDA_UM_GPU_PAGE_FAULT_EVENTS", "counters", "globalPid",
        ("start", "end", "globalPid", "deviceId", "numberOfPageFaults"), _gpu_faults,
    ),
    EventTable("CUDA_UM_CPU_PAGE_FAULT_EVENTS", "counters", "globalPid", ("start", "globalPid"), _cpu_faults),
)  # fmt: skip


def metric_batches(
    tables: Tables, capture: Capture, owners: Owners, skipped: Skipped
) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Yield GPU_METRICS as counters of the ranks that used the GPUs. Other rows are counted in `skipped`."""
    columns = ("timestamp", "typeId", "metricId", "value")
    if not tables.columns(METRICS):
        return
    names = {
        (row["typeId"], row["metricId"]): row["metricName"]
        for row in rows(tables, "TARGET_INFO_GPU_METRICS", ["typeId", "metricId", "metricName"])
    }
    places = _places(tables, capture, owners)
    for batch in tables.batches(METRICS, columns):
        batch = _readable(batch, "timestamp", skipped)
        is_typed = pc.and_(pc.is_valid(batch["typeId"]), pc.is_valid(batch["metricId"]))
        batch = skipped.choose("counters", batch, is_typed, "without a name")
        kinds = pa.table({"type": batch["typeId"], "metric": batch["metricId"]}).group_by(["type", "metric"])
        for kind in kinds.aggregate([]).to_pylist():
            is_kind = pc.and_(pc.equal(batch["typeId"], kind["type"]), pc.equal(batch["metricId"], kind["metric"]))
            own = filtered(batch, is_kind)
            size = len(own["value"])
            name = names.get((kind["type"], kind["metric"]))
            place = places.get(kind["type"] & _GPU_BITS)
            if name is None or place is None:
                skipped.add("counters", "without a name" if name is None else "of a GPU that no rank used", size)
                continue
            rank, device = place
            built = {
                "start_ns": own["timestamp"],
                "value": _in_unit(pc.cast(own["value"], pa.float64()), name),
                "device": pa.repeat(device, size),
                "name": name,
            }
            yield rank, record_batch("counters", built, size)


def _readable(batch: Columns, start: str, skipped: Skipped) -> Columns:
    """Return the rows with a start and a value; the values are text."""
    batch = skipped.choose("counters", batch, pc.is_valid(batch[start]), "without a start")
    is_number = pc.match_substring_regex(batch["value"], _NUMBER).fill_null(False)
    return skipped.choose("counters", batch, is_number, "without a number")


def _in_unit(values: pa.Array, name: str) -> pa.Array:
    """Return values in the unit that the name of the metric has: nsys writes clocks in Hz and names them MHz."""
    if not name.endswith("[MHz]"):
        return values
    return pc.if_else(pc.greater_equal(values, _LEAST_HZ), pc.divide(values, 1e6), values)


def network_batches(tables: Tables, owners: Owners, skipped: Skipped) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Yield metrics of NICs and switches as counters of the first rank: they are of the node.

    A value is that of an interval, which begins at its start. Other rows are counted in `skipped`.
    """
    if not owners.ranks or not any(map(tables.columns, NETWORK)):
        return
    rank = min(owners.ranks.values(), key=lambda r: r or 0)
    metrics = {
        (row["metricsListId"], row["metricsIdx"]): f"{row['name']} [{row['unit']}]" if row["unit"] else row["name"]
        for row in rows(tables, "TARGET_INFO_NETWORK_METRICS", ["metricsListId", "metricsIdx", "name", "unit"])
    }
    nics = {row["nicId"]: row["name"] for row in rows(tables, "TARGET_INFO_NIC_INFO", ["nicId", "name"])}
    places = {row["globalId"]: nics.get(row["nicId"]) for row in rows(tables, "NIC_ID_MAP", ["nicId", "globalId"])}
    for table in NETWORK:
        for batch in tables.batches(table, ("start", "globalId", "portId", "metricsListId", "metricsIdx", "value")):
            batch = _readable(batch, "start", skipped)
            kinds = pa.table({k: batch[k] for k in ("globalId", "portId", "metricsListId", "metricsIdx")})
            names = [_network_name(row, metrics, places) for row in kinds.to_pylist()]
            batch["name"] = pa.array(names, pa.string())
            batch = skipped.choose("counters", batch, pc.is_valid(batch["name"]), "without a name")
            size = len(batch["name"])
            built = {"start_ns": batch["start"], "value": pc.cast(batch["value"], pa.float64()), "name": batch["name"]}
            yield rank, record_batch("counters", built, size)


def _network_name(
    row: dict[str, int | None], metrics: dict[tuple[int | None, int | None], str | None], nics: dict[int, str | None]
) -> str | None:
    """Return `mlx5_0 port 1 IB: Bytes sent [B]`; None if the metric is not known."""
    metric = metrics.get((row["metricsListId"], row["metricsIdx"]))
    if metric is None or row["globalId"] is None:
        return None
    place = nics.get(row["globalId"]) or f"{row['globalId'] & _UNSIGNED:#x}"
    return f"{place} {metric}" if row["portId"] is None else f"{place} port {row['portId']} {metric}"


def _places(tables: Tables, capture: Capture, owners: Owners) -> dict[int, tuple[int | None, int]]:
    """Return rank and device index of each GPU that a rank used."""
    worked = used_devices(tables)
    # Without GPU work, as of a CUDA that nsys does not know, a context is the only evidence.
    contexts = {
        (process, row["deviceId"])
        for row in rows(tables, "TARGET_INFO_CUDA_CONTEXT_INFO", ["processId", "deviceId"])
        for process in owners.ranks.keys() - worked.keys()
        if row["processId"] == pid_of(process)
    }
    used = {
        (process, device)
        for process, device in contexts | {(p, device) for p, devices in worked.items() for device in devices}
        if device is not None and process in owners.ranks
    }
    gpus = {
        (row["pid"], row["cudaId"]): row["gpuId"]
        for row in rows(tables, "TARGET_INFO_CUDA_DEVICE", ["pid", "cudaId", "gpuId"])
    }
    # Older exports do not say which GPU a device is.
    visible = [] if gpus else capture.visible_gpus(tables)
    guess = not gpus and not visible
    types = [batch["typeId"].drop_null() for batch in tables.batches(METRICS, ["typeId"])] if guess else []
    sampled = {gpu for own in types for gpu in pc.bit_wise_and(own, _GPU_BITS).unique().to_pylist()}
    found: dict[int, tuple[int | None, int]] = {}
    for process, device in sorted(used):
        gpu = gpus.get((pid_of(process), device))
        if device < len(visible):
            gpu = visible[device]
        elif guess:
            gpu = next(iter(sampled)) if len(sampled) == len(used) == 1 else device
        shared = owners.device(process)
        if gpu is not None:
            found.setdefault(gpu, (owners.ranks[process], device if shared is None else shared))
    return found
