"""Group bare files into runs, and find the rank of each.

Files are one run if they say so: the same world size and distinct ranks (`distributedInfo` of a Chrome trace; the
launcher's variables and the same job in a report of Nsight Systems). The rank is what the file says. The file name
counts only within a set that is known to be one run. The order of files never counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from analyze.errors import InputError
from analyze.ingestion.ranks_in_names import (
    PARALLEL_PLACES,
    name_rank,
    ranks_of,
    replica,
    server_of,
    time_of_writing,
    without_rank,
)
from analyze.sources import Source
from analyze.sources.rank_hint import Looked, RankHint
from analyze.sources.remote import RawPath

_SHOWN_KINDS = 4


@dataclass
class BareFile:
    """A raw file outside a run folder. `given`: the user named the file itself, not a folder above it."""

    path: RawPath
    source: Source
    hint: RankHint
    given: bool

    @property
    def looked(self) -> Looked:
        """Its format and hint, as stored in the catalogue."""
        return Looked(self.source.kind, self.hint)


@dataclass
class FileSet:
    """Files of one run with the (first) rank of each; `world_size` is None unless the files say it."""

    files: list[tuple[int, BareFile]]
    world_size: int | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def ranks(self) -> set[int]:
        """The ranks of its files."""
        return {rank + n for rank, file in self.files for n in range(file.hint.processes)}

    @property
    def shifts_ns(self) -> list[int]:
        """Shift of the times of each file (`shifts`)."""
        return shifts([file.hint.clock_ns for _, file in self.files])


def shifts(clocks: Sequence[int | None]) -> list[int]:
    """Return the shift of each file that puts all times on the earliest clock; all 0 if a clock is unknown."""
    known = [c for c in clocks if c is not None]
    return [c - min(known) for c in known] if len(known) == len(clocks) else [0] * len(clocks)


def group(files: Iterable[BareFile]) -> list[FileSet]:
    """Group files into runs; a file that says nothing is a run of its own."""
    sets: list[FileSet] = []
    claims: dict[tuple[str, int, str | None, int], dict[RawPath, list[BareFile]]] = {}
    for file in files:
        _, world_size, job, processes, _ = file.hint
        if world_size is None or world_size < 2:
            sets.append(_alone(file))
        else:
            folders = claims.setdefault((file.source.kind, world_size, job, processes), {})
            folders.setdefault(file.path.parent, []).append(file)
    for (_, world_size, job, processes), folders in claims.items():
        found = [s for folder, members in folders.items() for s in _of_folder(folder, members, world_size)]
        sets += [_of_nodes(s, processes) for s in _across_folders(found, job is not None)]
    for one in sets:
        _check_clocks(one)
        if len(one.files) > 1 and one.world_size and len(one.ranks) < one.world_size:
            there, missing = spans(one.ranks), _missing(one.ranks, one.world_size)
            one.warnings.append(f"of {one.world_size} ranks only {there} are there; missing: {missing}")
    return sets


def as_one_run(files: Sequence[BareFile]) -> list[FileSet]:
    """Group all files of a format into one run, as the user asks; ranks that files do not say come from their names.

    Raises InputError if neither distinguishes the ranks.
    """
    kinds = {f.source.kind: [g for g in files if g.source.kind == f.source.kind] for f in files}
    return [_one_run(same) if len(same) > 1 else _alone(same[0]) for same in kinds.values()]


def _check_clocks(one: FileSet) -> None:
    """Warn if reports have session clocks of unknown start."""
    silent = [file.path for _, file in one.files if file.source.profiler == "nsys" and file.hint.clock_ns is None]
    if len(one.files) > 1 and silent:
        one.warnings.append(
            f"{silent[0]}: does not say when its recording began (TARGET_INFO_SESSION_START_TIME), so the times of "
            f"the {len(one.files)} reports of this run are not aligned"
        )


def _one_run(files: Sequence[BareFile]) -> FileSet:
    by_rank: dict[int, BareFile] = {}
    for file, rank in zip(files, ranks_of([f.path.name for f in files], _stated_ranks(files)), strict=True):
        if rank is None:
            raise InputError(f"{file.path}: neither the file nor its name says which rank of one run it is")
        if rank in by_rank:
            raise InputError(
                f"{file.path}: has rank {rank}, and so has {by_rank[rank].path}, so they cannot be one run"
            )
        by_rank[rank] = file
    sizes, processes = {f.hint.world_size for f in files}, {f.hint.processes for f in files}
    if len(processes) > 1:
        raise InputError(
            f"{files[0].path}: the reports have different numbers of processes, so the ranks are not known"
        )
    size = sizes.pop() if len(sizes) == 1 else None
    one = FileSet(sorted(by_rank.items(), key=_rank), size if size and max(by_rank) < size else None)
    _check_clocks(one)
    return _of_nodes(one, processes.pop())


def _stated_ranks(files: Sequence[BareFile]) -> list[int | None]:
    """Return the ranks that the files of one run state.

    Replicas of a model without a common process group (data parallelism of vLLM) each count ranks from 0; file names
    distinguish the replicas. With one process per replica, only file names are used.
    """
    ranks = [f.hint.rank for f in files]
    if servers := _ranks_of_servers(files):
        return servers
    [size, *others] = {f.hint.world_size for f in files}
    if others or size is None or None in ranks or len(set(ranks)) == len(ranks):
        return ranks
    replicas = [r for f in files if (r := replica(f.path.name)) is not None]
    if len(replicas) == len(files):
        return [replica * size + (rank or 0) for replica, rank in zip(replicas, ranks, strict=True)]
    return [None] * len(files) if size == 1 else ranks


def _ranks_of_servers(files: Sequence[BareFile]) -> list[int | None] | None:
    """Return the ranks of a deployment of prefill and decode servers. Each server counts its ranks from 0.

    The names of files or folders give the server; prefill servers come first. Return None if the names do not, or if a
    server has several files of one rank.
    """
    found = [server_of(file.path) for file in files]
    if {match and match[1].lower() for match in found} != {"prefill", "decode"}:
        return None
    ranks = [file.hint.rank if file.hint.rank is not None else name_rank(file.path.name) or 0 for file in files]
    for numbered in (False, True):
        servers = [
            (match[1].lower() == "decode", int(match[2] or 0) if numbered else 0)
            for match in found
            if match is not None
        ]
        if len(set(zip(servers, ranks, strict=True))) < len(files):
            continue
        sizes = dict.fromkeys(sorted(servers), 0)
        for server, rank, file in zip(servers, ranks, files, strict=True):
            sizes[server] = max(sizes[server], rank + 1, file.hint.world_size or 0)
        first = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
        return [first[server] + rank for server, rank in zip(servers, ranks, strict=True)]
    return None


def named_like_ranks(sets: Iterable[FileSet]) -> list[str]:
    """Return a hint for each folder whose files state no rank but may be the ranks of one run."""
    silent: dict[tuple[RawPath, str], list[str]] = {}
    for one in sets:
        file = one.files[0][1]
        if len(one.files) == 1 and file.hint.rank is None and file.source.profiler in ("torch", "nsys"):
            silent.setdefault((file.path.parent, file.source.kind), []).append(file.path.name)
    hints = []
    for (folder, kind), names in silent.items():
        if len(names) == 1:
            continue
        ranks = [name_rank(n) for n in names]
        each = "so each is a run of its own;"
        one_run = "`analyze ingest --as-one-run` reads them as one run"
        if kind == "nsys_report":
            # Only an export is looked into before it is read.
            hints.append(
                f"{folder}: the ranks of {len(names)} reports of Nsight Systems are not read, {each} "
                f"`nsys export --type sqlite` writes files whose ranks are read, and {one_run}"
            )
        elif None not in ranks and len(set(ranks)) == len(ranks):
            hints.append(f"{folder}: {len(names)} traces have ranks in their names only, {each} {one_run}")
    return hints


def spans(ranks: Iterable[int]) -> str:
    """Return 0, 1, 2, 5 as `0–2, 5`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ", ".join(f"{a}–{b}" if a < b else str(a) for a, b in runs)


def read_as(runs: Iterable[tuple[set[int], int | None]]) -> str:
    """Say how files were grouped, such as `1 run, ranks 0–1 of 2`. `runs`: ranks and world size of each."""
    kinds = Counter(_described(ranks, world_size) for ranks, world_size in runs)
    if not kinds:
        return "no run"
    if len(kinds) == 1:
        [(kind, runs_of_it)] = kinds.items()
        return f"1 run, {kind}" if runs_of_it == 1 else f"{runs_of_it} runs, each {kind}"
    shown = [f"{n} of {kind}" for kind, n in kinds.most_common(_SHOWN_KINDS)]
    if rest := kinds.total() - sum(n for _, n in kinds.most_common(_SHOWN_KINDS)):
        shown.append(f"{rest} of others")
    return f"{kinds.total()} runs: {', '.join(shown)}"


def _described(ranks: set[int], world_size: int | None) -> str:
    if (world_size or 1) == 1 and ranks <= {0}:
        return "one process"
    of = f" of {world_size}" if world_size and max(ranks, default=0) < world_size else ""
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {spans(ranks) or '(none)'}{of}"


def _missing(ranks: set[int], world_size: int) -> str:
    """Return the missing ranks below the world size in the form of `spans`; they may be many."""
    edges = [-1, *sorted(ranks), world_size]
    gaps = [(a + 1, b - 1) for a, b in pairwise(edges) if b - a > 1]
    return ", ".join(f"{a}–{b}" if a < b else str(a) for a, b in gaps)


def _of_nodes(one: FileSet, processes: int) -> FileSet:
    """Return a set by process ranks if its files are reports of nodes with `processes` each."""
    if processes == 1:
        return one
    if len(one.files) == 1:
        return FileSet([(0, one.files[0][1])], warnings=one.warnings)
    files = [(node * processes, file) for node, file in one.files]
    return FileSet(files, one.world_size and one.world_size * processes, one.warnings)


def _alone(file: BareFile) -> FileSet:
    if file.hint.processes > 1:
        return FileSet([(0, file)])
    return FileSet([(file.hint.rank or 0, file)], file.hint.world_size)


def _of_folder(folder: RawPath, files: list[BareFile], world_size: int) -> list[FileSet]:
    """Group the files of one folder with the same world size into runs."""
    ranked: list[tuple[int, BareFile]] = []
    unranked = []
    for file in files:
        rank = file.hint.rank if file.hint.rank is not None else name_rank(file.path.name)
        if rank is not None and rank < world_size:
            ranked.append((rank, file))
        else:
            unranked.append(_alone(file))
    counts = Counter(rank for rank, _ in ranked)
    clash, times = max(counts.items(), key=lambda item: item[1], default=(0, 0))
    if times <= 1:
        return unranked + ([FileSet(sorted(ranked, key=_rank), world_size)] if ranked else [])
    said = f"{folder}: {times} files say that they are rank {clash} of {world_size}"
    runs = _same_name(ranked) or _same_moment(ranked)
    if runs:
        why = f"{said}, so they are {len(runs)} recordings, distinguished by their names"
    else:
        runs = [[pair] for pair in ranked]
        why = f"{said}, and nothing tells which files belong together, so each file is a run of its own"
    return unranked + [FileSet(sorted(run, key=_rank), world_size, [why]) for run in runs]


def _rank(pair: tuple[int, BareFile]) -> int:
    return pair[0]


def _same_name(ranked: list[tuple[int, BareFile]]) -> list[list[tuple[int, BareFile]]] | None:
    """Group recordings by file names without the rank: step5_rank0, step5_rank1, step9_rank0 ..."""
    for places in (None, *PARALLEL_PLACES):
        runs: dict[str, list[tuple[int, BareFile]]] = defaultdict(list)
        for rank, file in ranked:
            runs[without_rank(file.path.name, rank, places)].append((rank, file))
        if _whole(runs.values()):
            return list(runs.values())
    return None


def _same_moment(ranked: list[tuple[int, BareFile]]) -> list[list[tuple[int, BareFile]]] | None:
    """Group recordings by the times in the names: the n-th of every rank, if all ranks have as many."""
    timed = []
    for rank, file in ranked:
        time = time_of_writing(file.path.name)
        if time is None:
            return None
        timed.append((time, rank, file))
    runs: list[list[tuple[int, BareFile]]] = [[]]
    for _, rank, file in sorted(timed, key=lambda t: t[:2]):
        if any(rank == r for r, _ in runs[-1]):
            runs.append([])
        runs[-1].append((rank, file))
    return runs if _whole(runs) else None


def _whole(runs: Iterable[list[tuple[int, BareFile]]]) -> bool:
    """Return whether every recording has the same ranks, each once, and more than one."""
    ranks = [sorted(r for r, _ in run) for run in runs]
    return len(ranks[0]) > 1 and len(set(ranks[0])) == len(ranks[0]) and all(r == ranks[0] for r in ranks)


def _across_folders(sets: list[FileSet], same_job: bool) -> list[FileSet]:
    """Join the sets of several folders (one for each node) if their ranks are distinct.

    Unrelated folders may lie side by side, so the files must name the job or every rank must be there.
    """
    ranks = [rank for s in sets for rank in s.ranks]
    distinct = len(set(ranks)) == len(ranks) and not any(s.warnings for s in sets)
    given = all(file.given for s in sets for _, file in s.files)
    if len(sets) < 2 or not distinct or not (given or same_job or len(ranks) == sets[0].world_size):
        return sets
    return [FileSet(sorted((pair for s in sets for pair in s.files), key=_rank), sets[0].world_size)]
