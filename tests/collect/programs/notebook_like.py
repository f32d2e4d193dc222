"""Cells that are compiled and run one after the other."""

cells = [
    "import torch; torch.manual_seed(0); model = torch.nn.Linear(8, 1)",
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)",
    "def step():\n    optimizer.zero_grad()\n    loss = model(torch.randn(4, 8)).square().mean()\n    loss.backward()\n"
    "    optimizer.step()\n    return loss.item()",
    "losses = [step().hex() for _ in range(8)]",
    "print(losses)",
]
namespace = {"__name__": "__main__"}
for number, cell in enumerate(cells):
    exec(compile(cell, f"<cell {number}>", "exec"), namespace)
