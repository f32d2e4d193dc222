"""Expert parallelism: an expert on each rank, tokens sent there and back by all_to_all; the head is data-parallel.

collect run -o runs -- torchrun --nproc-per-node 4 examples/parallel/expert.py
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--blocks", type=int, default=3)
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--tokens", type=int, default=16384, help="of a rank; a multiple of the ranks")
options = parser.parse_args()

cuda = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if cuda else "gloo")
dtype = torch.bfloat16 if cuda else torch.float32


class Exchange(torch.autograd.Function):
    """The n-th part of the tokens goes to rank n; gradients go back the same way."""

    @staticmethod
    def forward(ctx: object, tokens: torch.Tensor) -> torch.Tensor:
        """What came from the other ranks."""
        received = torch.empty_like(tokens)
        dist.all_to_all_single(received, tokens.contiguous())
        return received

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        """What belongs to the tokens sent."""
        return Exchange.forward(ctx, grad)


class Expert(nn.Module):
    """The expert of this rank: every rank sends it the same share of its tokens."""

    def __init__(self, width: int):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens x width, in and out."""
        return x + Exchange.apply(self.mlp(Exchange.apply(x)))


torch.manual_seed(dist.get_rank())
experts = nn.Sequential(*(Expert(options.width) for _ in range(options.blocks))).to(device, dtype)
head = nn.parallel.DistributedDataParallel(nn.Linear(options.width, options.width).to(device, dtype))
optimizer = torch.optim.SGD([*experts.parameters(), *head.parameters()], lr=1e-3)
tokens = torch.randn(options.tokens, options.width, device=device, dtype=dtype)
for _ in range(options.steps):
    head(experts(tokens)).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
