# /// script
# requires-python = ">=3.11"
# dependencies = ["ipykernel", "papermill", "torch"]
# ///
"""Runs a notebook with papermill; its kernel is a process of its own."""

import tempfile
from pathlib import Path

import nbformat
import papermill

CELLS = (
    "import torch\ntorch.manual_seed(0)\nmodel = torch.nn.Linear(8, 1)",
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)",
    """for _ in range(8):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
print(loss.item().hex())""",
)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "in.ipynb")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbformat.write(notebook, path)
    done = papermill.execute_notebook(path, None, kernel_name="python3", progress_bar=False, cwd=folder)
    print(done.cells[-1].outputs[0].text, end="")
