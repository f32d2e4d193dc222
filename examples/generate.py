"""Text generation: one pass over the prompt, then a token at a time, with the keys and values kept.

collect run -o runs -- python examples/generate.py
"""

import argparse

import torch
from torch import nn
from torch.profiler import record_function

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--tokens", type=int, default=32, help="to be generated")
parser.add_argument("--prompt", type=int, default=128, help="tokens of the prompt")
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--width", type=int, default=512)
options = parser.parse_args()


class Block(nn.Module):
    """Attention over all tokens so far, then an MLP."""

    def __init__(self, width: int, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.kept: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The new tokens, batch x tokens x width, in and out."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if self.kept:
            k, v = (torch.cat([old, new], 2) for old, new in zip(self.kept, (k, v), strict=True))
        self.kept = [k, v]
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)
        return x + self.mlp(x + attended.transpose(1, 2).flatten(2))


device = "cuda" if torch.cuda.is_available() else "cpu"
words = 1000
blocks = [Block(options.width) for _ in range(options.layers)]
model = nn.Sequential(nn.Embedding(words, options.width), *blocks, nn.Linear(options.width, words)).to(device)
with torch.inference_mode():
    # A program without an optimizer is recorded whole; the ranges are its steps in `analyze query serving`.
    with record_function("prefill"):
        token = model(torch.randint(words, (1, options.prompt), device=device))[:, -1:].argmax(-1)
    for _ in range(options.tokens - 1):
        with record_function("decode"):
            token = model(token).argmax(-1)
print(f"last token {token.item()}")
