"""A transformer whose keys and values are in pages, as those of a server: requests of any length share one cache."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

WORDS = 1000
HEAD = 64
"""Width of an attention head."""


class Attention(nn.Module):
    """Attention over the pages of each request."""

    def __init__(self, width: int, pages: int, page: int) -> None:
        super().__init__()
        self.page = page
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(pages, page, width // HEAD, HEAD))

    def forward(self, x: torch.Tensor, table: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Return requests x new tokens x width. `table`: pages of each request; `position`: of each new token."""
        q, k, v = (part.unflatten(-1, (-1, HEAD)) for part in self.qkv(x).chunk(3, -1))
        place = table.gather(1, position // self.page), position % self.page
        self.keys.index_put_(place, k)
        self.values.index_put_(place, v)
        mask = None
        if x.shape[1] == 1:
            k, v = (cache[table].flatten(1, 2) for cache in (self.keys, self.values))
            mask = torch.arange(k.shape[1], device=x.device) <= position.view(-1, 1, 1, 1)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.out(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Attention, then an MLP."""

    def __init__(self, width: int, pages: int, page: int) -> None:
        super().__init__()
        self.attention = Attention(width, pages, page)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, table: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Return requests x new tokens x width."""
        x = x + self.attention(self.norm1(x), table, position)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    """Layers between an embedding and the choice of the next token."""

    def __init__(self, layers: int, width: int, pages: int, page: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList(Layer(width, pages, page) for _ in range(layers))
        self.head = nn.Linear(width, WORDS, bias=False)

    def forward(self, tokens: torch.Tensor, table: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Return the next token of each request."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, table, position)
        return self.head(x[:, -1]).argmax(-1)
