"""A training step captured once as a CUDA graph and replayed: one launch a step. Needs a GPU.

collect run -o runs -- python examples/cuda_graph.py
"""

import argparse

import torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--width", type=int, default=256)
options = parser.parse_args()

layers = [layer for _ in range(16) for layer in (torch.nn.Linear(options.width, options.width), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers).cuda()
# Steps are counted by optimizer.step(), so the optimizer is not part of the graph; its gradients are.
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
batch = torch.randn(32, options.width, device="cuda")


def forward_and_backward() -> torch.Tensor:
    """Leave new gradients where the old ones were."""
    optimizer.zero_grad(set_to_none=False)
    loss = model(batch).square().mean()
    loss.backward()
    return loss


# As PyTorch asks for it: a few times on a stream of its own before the capture.
aside = torch.cuda.Stream()
aside.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(aside):
    for _ in range(3):
        forward_and_backward()
torch.cuda.current_stream().wait_stream(aside)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = forward_and_backward()

for _ in range(options.steps):
    batch.copy_(torch.randn_like(batch))
    graph.replay()
    optimizer.step()
print(f"loss {loss.item():.3f}")
