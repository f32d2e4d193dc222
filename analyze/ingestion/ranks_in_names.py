"""Ranks, replicas, servers and times in the names of raw files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from analyze.sources.remote import RawPath

_RANK_PATTERNS = (
    re.compile(r"rank[-_.=\[ ]?(\d{1,6})(?!\d)", re.IGNORECASE),
    re.compile(
        r"(?:^|[-_.])(?:r|gpu|worker|proc|process|device|dev|localrank)[-_.=\[]?(\d{1,6})(?=[-_.\]]|$)", re.IGNORECASE
    ),
)
_REPLICA = re.compile(r"(?:^|[-_.])dp[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)
"""Which replica a file is of, in the names that vLLM gives: dp1_pp0_tp0_dcp0_ep1_rank0."""
PARALLEL_PLACES = tuple(
    re.compile(rf"(?<![a-z])(?:{names})[-_]?\d{{1,6}}(?!\d)", re.IGNORECASE)
    for names in ("tp|pp|ep|cp|dcp|pcp", "tp|pp|ep|cp|dcp|pcp|dp")
)
"""Places in the parallelism, in the names that SGLang and vLLM give: 1700.5-TP-3-DP-1-DECODE. Replicas (dp) may be one
run or a run each."""
_SERVER = re.compile(r"(?<![a-z])(prefill|decode)(?:er|r)?(?:[-_]?(\d{1,6})(?!\d))?", re.IGNORECASE)
"""Which server of a deployment a file or folder is of: prefiller_profiler, decode-1."""
_TIME = re.compile(r"\.(\d{10,20})\.pt\.trace\.json")
"""Time of writing in names of torch.profiler.tensorboard_trace_handler."""


def name_rank(name: str) -> int | None:
    """Return the rank in a file name such as rank-3.json; for files that are known to be of one run."""
    return _by_pattern(_RANK_PATTERNS[0])(name)


def replica(name: str) -> int | None:
    """Return the data-parallel replica in a file name."""
    match = _REPLICA.search(name)
    return int(match[1]) if match else None


def time_of_writing(name: str) -> int | None:
    """Return the time in a file name of torch.profiler.tensorboard_trace_handler: ns, or ms of older versions."""
    match = _TIME.search(name)
    return int(match[1]) if match else None


def ranks_of(names: list[str], stated: list[int | None]) -> list[int | None]:
    """Return the ranks of files of one run: from the file, else from its name."""
    ranks = list(stated)
    for find in (*(_by_pattern(p) for p in _RANK_PATTERNS), _only_difference(names)):
        guesses = [find(n) if r is None else None for n, r in zip(names, ranks, strict=True)]
        taken = Counter(r for r in (*ranks, *guesses) if r is not None)
        ranks = [
            r if r is not None else g if g is not None and taken[g] == 1 else None
            for r, g in zip(ranks, guesses, strict=True)
        ]
    return ranks


def server_of(path: RawPath) -> re.Match[str] | None:
    """Return the match of `_SERVER` in the name of a file, or of one of the two folders above it."""
    parts = (path, path.parent, path.parent.parent)
    return next((match for part in parts if (match := _SERVER.search(part.name))), None)


def without_rank(name: str, rank: int, places: re.Pattern[str] | None) -> str:
    """Return a name with * for its rank, and for what `places`, one of PARALLEL_PLACES, matches."""
    match = next((m for p in _RANK_PATTERNS if (m := p.search(name)) and int(m[1]) == rank), None)
    rest = name if match is None else name[: match.start(1)] + "*" + name[match.end(1) :]
    return places.sub("*", rest) if places else rest


def _by_pattern(pattern: re.Pattern[str]) -> Callable[[str], int | None]:
    def find(name: str) -> int | None:
        match = pattern.search(name)
        return int(match.group(1)) if match else None

    return find


def _only_difference(names: list[str]) -> Callable[[str], int | None]:
    """Return a function for the only number in which the names differ, if the numbers count like ranks."""
    split = [re.split(r"([0-9]+)", n) for n in names]
    if len(names) > 1 and len({len(s) for s in split}) == 1:
        varying = [i for i, parts in enumerate(zip(*split, strict=True)) if len(set(parts)) > 1]
        if len(varying) == 1 and varying[0] % 2 == 1:
            numbers = {n: int(s[varying[0]]) for n, s in zip(names, split, strict=True)}
            if max(numbers.values()) <= 100_000:
                return numbers.get
    return lambda name: None
