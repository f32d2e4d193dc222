"""Requests, and the lengths of a batch of them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Request:
    """A request and its pages."""

    prompt: list[int]
    wanted: int
    pages: list[int] = field(default_factory=list)
    generated: list[int] = field(default_factory=list)

    def is_done(self) -> bool:
        """Return whether it has all its tokens."""
        return len(self.generated) >= self.wanted

    def cached(self) -> int:
        """Return its tokens in the cache: all but the last one generated."""
        return len(self.prompt) + max(len(self.generated) - 1, 0)


def part(batch: list[Request]) -> str:
    """Return the requests, and sums over their new tokens q and the tokens k that these attend to."""
    pairs = [(1, r.cached() + 1) if r.generated else (r.cached(), r.cached()) for r in batch]
    q, k, qq, qk = (sum(values) for values in zip(*((q, k, q * q, q * k) for q, k in pairs), (0, 0, 0, 0), strict=True))
    return f"{len(batch)}(sq{q}sk{k}sqsq{qq}sqsk{qk})"
