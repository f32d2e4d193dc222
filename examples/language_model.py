"""Training steps of a small transformer, eager or compiled.

collect run -o runs -- python examples/language_model.py
collect run -o runs -- python examples/language_model.py --compile inductor
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--width", type=int, default=512)
parser.add_argument("--tokens", type=int, default=512, help="length of a sequence")
parser.add_argument("--compile", metavar="BACKEND", help="of torch.compile: inductor (needs a C++ compiler), aot_eager")
options = parser.parse_args()


class Block(nn.Module):
    """Attention, then an MLP, each beside what came in."""

    def __init__(self, width: int, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Batch x tokens x width, in and out."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, -1)
        )
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


device = "cuda" if torch.cuda.is_available() else "cpu"
words, width = 1000, options.width
blocks = [Block(width) for _ in range(options.layers)]
model = nn.Sequential(nn.Embedding(words, width), *blocks, nn.Linear(width, words)).to(device)
step = torch.compile(model, backend=options.compile) if options.compile else model
optimizer = torch.optim.AdamW(model.parameters())
text = torch.randint(words, (4, options.tokens + 1), device=device)
for _ in range(options.steps):
    with torch.autocast(device, torch.bfloat16):
        loss = nn.functional.cross_entropy(step(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
