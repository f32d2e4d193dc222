"""Decode steps of a fixed number of requests, captured once as a CUDA graph and replayed; eager on a CPU."""

from __future__ import annotations

import torch
from paged_model import Model


class Decoder:
    """The next token of each of `batch` requests. Fewer requests are padded with ones of page 0, which nobody uses."""

    def __init__(self, model: Model, batch: int, pages: int, graph: bool) -> None:
        """`pages`: of a request."""
        self.model, self.batch = model, batch
        self.inputs = [torch.zeros(batch, width, dtype=torch.long) for width in (1, pages, 1)]
        # The first calls choose algorithms and allocate, which a capture must not.
        for _ in range(2):
            model(*self.inputs)
        self.graph = torch.cuda.CUDAGraph() if graph else None
        if self.graph:
            with torch.cuda.graph(self.graph):
                self.next = model(*self.inputs)

    def __call__(self, tokens: list[int], pages: list[list[int]], lengths: list[int]) -> list[int]:
        """Return the next tokens. `lengths`: tokens of each request in the cache."""
        rows = [[t] for t in tokens], pages, [[n] for n in lengths]
        for kept, new in zip(self.inputs, rows, strict=True):
            kept.zero_()[: len(tokens)] = torch.tensor(new)
        if self.graph:
            self.graph.replay()
            return self.next.tolist()[: len(tokens)]
        return self.model(*self.inputs).tolist()[: len(tokens)]
