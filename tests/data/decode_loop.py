"""Tokens of a small transformer with a static cache, one at a time: eager, as a CUDA graph, or compiled into one.

Recorded on an H100 with `collect run --steps 3 --warmup 5 --detail full --step-function __main__:decode -- python3
decode_loop.py compiled` into tests/data/decode-loop/compiled. Samples of the GPU and logs are left out.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("mode", choices=["eager", "graph", "compiled"])
parser.add_argument("--tokens", type=int, default=60)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--context", type=int, default=1024)
options = parser.parse_args()


class Attention(nn.Module):
    """Attention of one new token of each sequence to all before it, which a cache holds."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(options.width, 3 * options.width, bias=False)
        self.out = nn.Linear(options.width, options.width, bias=False)
        self.register_buffer("cache", torch.zeros(2, options.batch, options.width // 64, options.context, 64))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Return the output for the token at `position`, batch x width."""
        q, k, v = self.qkv(x).view(options.batch, 3, -1, 1, 64).unbind(1)
        self.cache[0].index_copy_(2, position, k)
        self.cache[1].index_copy_(2, position, v)
        mask = (torch.arange(options.context, device=x.device) <= position).view(1, 1, 1, -1)
        y = F.scaled_dot_product_attention(q, self.cache[0], self.cache[1], attn_mask=mask)
        return self.out(y.reshape(options.batch, -1))


class Layer(nn.Module):
    """Attention, then an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.norm1, self.norm2 = nn.LayerNorm(options.width), nn.LayerNorm(options.width)
        self.mlp = nn.Sequential(
            nn.Linear(options.width, 4 * options.width), nn.SiLU(), nn.Linear(4 * options.width, options.width)
        )

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Return batch x width."""
        x = x + self.attention(self.norm1(x), position)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    """Layers between an embedding and the choice of the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, options.width)
        self.layers = nn.ModuleList(Layer() for _ in range(options.layers))
        self.head = nn.Linear(options.width, 1000)

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Return the next token of each sequence."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, position)
        return self.head(x).argmax(-1)


torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
    model = Model()
    tokens = torch.zeros(options.batch, dtype=torch.long)
    position = torch.zeros(1, dtype=torch.long)
run = torch.compile(model, mode="reduce-overhead") if options.mode == "compiled" else model


@torch.no_grad()
def step() -> None:
    """Generate the next token of each sequence in place."""
    tokens.copy_(run(tokens, position))
    position.add_(1)


def decode() -> None:
    """Generate a token of each sequence."""
    if options.mode == "graph":
        graph.replay()
    else:
        step()


if options.mode == "graph":
    # As PyTorch asks for it: a few times on a stream of its own before the capture.
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()


for _ in range(options.tokens):
    decode()
print(f"last tokens {tokens[:4].tolist()}")
