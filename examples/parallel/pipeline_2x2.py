"""A pipeline of two stages with two replicas: ranks 0 and 1 are the first stage, 2 and 3 the second.

Stages exchange microbatches in the groups [0, 2] and [1, 3], in turn by send and recv and by batch_isend_irecv.
Replicas add up their gradients in the groups [0, 1] and [2, 3].

collect run -o runs -- torchrun --nproc-per-node 4 examples/parallel/pipeline_2x2.py
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--microbatches", type=int, default=4)
parser.add_argument("--layers", type=int, default=3, help="of a stage")
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--rows", type=int, default=2048, help="rows of a microbatch")
options = parser.parse_args()

cuda = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if cuda else "gloo")
mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("pp", "dp"))
pipeline, replicas = mesh.get_group("pp"), mesh.get_group("dp")
is_first = mesh.get_local_rank("pp") == 0
peer = dist.get_global_rank(pipeline, 1 if is_first else 0)
width = options.width
layers = [layer for _ in range(options.layers) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
stage = torch.nn.Sequential(*layers).to(device)
optimizer = torch.optim.SGD(stage.parameters(), lr=1e-3)
data = torch.randn(options.rows, width, device=device)


def send(tensor: torch.Tensor, number: int) -> None:
    """Send a microbatch to the other stage: every second one in a batch."""
    if number % 2:
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, peer, pipeline)]):
            work.wait()
    else:
        dist.send(tensor, peer, group=pipeline)


def receive(like: torch.Tensor, number: int) -> torch.Tensor:
    """Receive what `send` sent."""
    tensor = torch.empty_like(like)
    if number % 2:
        for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, tensor, peer, pipeline)]):
            work.wait()
    else:
        dist.recv(tensor, peer, group=pipeline)
    return tensor


for _ in range(options.steps):
    if is_first:
        outputs = [stage(data) for _ in range(options.microbatches)]
        for number, output in enumerate(outputs):
            send(output.detach(), number)
        for number, output in enumerate(outputs):
            output.backward(receive(output, number))
    else:
        inputs = []
        for number in range(options.microbatches):
            inputs.append(receive(data, number).requires_grad_())
            stage(inputs[-1]).square().mean().backward()
        for number, tensor in enumerate(inputs):
            send(tensor.grad, number)
    for parameter in stage.parameters():
        dist.all_reduce(parameter.grad, group=replicas)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
