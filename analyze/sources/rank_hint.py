"""What a raw file says about its rank, its job and its clock."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


class RankHint(NamedTuple):
    """What a raw file says of its place in a job; None where it does not say.

    `rank` is below 2^31, and below `world_size` where both are there.
    """

    rank: Int32 | None = None
    world_size: Int32 | None = None
    job: str | None = None
    """Identifies the job, if the format has such a thing."""
    processes: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 1
    """Ranks in the file. With several, `rank` is the number of the node and `world_size` the number of nodes."""
    clock_ns: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None = None
    """The file's time 0 in ns since 1970, if the file has a clock of its own and says its start."""


class Looked(NamedTuple):
    """A file's format, a kind of `analyze.sources`, and its rank hint."""

    kind: str
    hint: RankHint
