"""Train a Transformer with ever larger batches until the GPU's memory runs out, and print what its layers added.

Recorded with `collect run --memory-history --steps 2 --gpu-steps 0 --warmup 1 --detail light -- python3 encoder_oom.py`
on an H100 with torch 2.11: tests/data/encoder-oom has its snapshot, and what it printed.
"""

import torch


class Model(torch.nn.Module):
    """Four layers and a head."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 4)
        self.head = torch.nn.Linear(1024, 1024)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a loss."""
        return self.head(self.encoder(x)).square().mean()


def held() -> int:
    """Bytes that the program has requested and holds."""
    return torch.cuda.memory_stats()["requested_bytes.all.current"]


torch.manual_seed(0)
model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters())
before: list[int] = []
after: list[int] = []
for layer in model.encoder.layers:
    layer.register_forward_pre_hook(lambda module, inputs: before.append(held()))
    layer.register_forward_hook(lambda module, inputs, output: after.append(held()))
try:
    for batch in (16, 16, 16, 32, 64, 128, 256, 512, 1024, 2048):
        before.clear()
        after.clear()
        model(torch.randn(batch, 512, 1024, device="cuda")).backward()
        optimizer.step()
        optimizer.zero_grad()
except torch.OutOfMemoryError:
    if len(after) < len(before):
        after.append(held())  # of the layer that ran out of memory
    stats = torch.cuda.memory_stats()
    print(f"batch {batch} layers {len(before)} added {sum(after) - sum(before)} held {held()}")
    print(f"requested_bytes.all.peak {stats['requested_bytes.all.peak']}")
    raise
