"""Two optimizers in turn."""

import torch

torch.manual_seed(0)
generator, critic = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (generator, critic)]
for _ in range(10):
    for optimizer, sign in zip(optimizers, (-1, 1), strict=True):
        optimizer.zero_grad()
        loss = sign * critic(generator(torch.randn(4, 4))).mean()
        loss.backward()
        optimizer.step()
print(loss.item().hex())
