"""A trainer: epochs, accumulated gradients, a scheduler, clipping, a checkpoint that is resumed."""

import io

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)
saved = io.BytesIO()
for epoch in range(3):
    model.train()
    for batch in range(8):
        loss = model(torch.randn(4, 8)).square().mean() / 2
        loss.backward()
        if batch % 2:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        print(epoch, model(torch.ones(1, 8)).item().hex())
    saved.seek(0)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saved)
saved.seek(0)
state = torch.load(saved)
optimizer.load_state_dict(state["optimizer"])
print(len(state["model"]), loss.item().hex())
