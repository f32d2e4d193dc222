# /// script
# requires-python = ">=3.11"
# dependencies = ["torch", "torch-geometric"]
# ///
"""Trains a graph network of PyG on random graphs."""

import torch
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(4, 8), GCNConv(8, 1)

    def forward(self, data):
        x = self.first(data.x, data.edge_index).relu()
        return global_mean_pool(self.second(x, data.edge_index), data.batch)


seed_everything(0)
graphs = [Data(torch.randn(10, 4), torch.randint(0, 10, (2, 20)), y=torch.randn(1, 1)) for _ in range(32)]
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for batch in DataLoader(graphs, batch_size=4, shuffle=True):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(batch), batch.y)
    loss.backward()
    optimizer.step()
print(loss.item().hex())
