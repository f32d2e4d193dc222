"""Train, and keep enlarged copies of the outputs until the GPU's memory runs out."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4096, 8192), torch.nn.GELU(), torch.nn.Linear(8192, 4096)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
outputs = []
try:
    for _ in range(100):
        output = model(torch.randn(2048, 4096, device="cuda"))
        output.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        outputs.append(torch.cat([output.detach()] * 200))
except torch.OutOfMemoryError:
    stats = torch.cuda.memory_stats()
    names = [f"requested_bytes.all.{when}" for when in ("current", "peak")]
    print(*(f"{name} {stats[name]}" for name in names))
    peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    print("max_memory_allocated", peaks[0], "max_memory_reserved", peaks[1])
    raise
