"""Collects experience by many calls of a policy, then trains it."""

import torch

torch.manual_seed(0)
policy = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
at, seen = torch.zeros(2), []
for _ in range(2000):
    with torch.no_grad():
        action = torch.distributions.Categorical(logits=policy(at)).sample()
    seen.append((at, action))
    at = (at + torch.tensor([1.0, -1.0])[action]).clamp(-3, 3)
states, actions = map(torch.stack, zip(*seen, strict=True))
for batch in torch.randperm(2000).split(250):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(policy(states[batch]), actions[batch])
    loss.backward()
    optimizer.step()
print(len(seen), loss.item().hex())
