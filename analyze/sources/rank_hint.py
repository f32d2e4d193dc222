"""What a raw file says of its place in a job."""

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
    """What tells this job from others, where the format has such a thing."""
    processes: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 1
    """Ranks that the file holds. If it is of several, `rank` is the number of its node and `world_size` the nodes."""
    clock_ns: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None = None
    """When the time 0 of the file was, since 1970, if it counts from a moment of its own and says which."""


class Looked(NamedTuple):
    """What looking into a file found: its format, a kind of `analyze.sources`, and its place in a job."""

    kind: str
    hint: RankHint
