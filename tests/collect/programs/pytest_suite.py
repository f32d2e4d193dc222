"""pytest runs tests that train."""

import contextlib
import io
import pathlib
import tempfile

import pytest

TEST = """
import torch

def test_training():
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(8):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
"""
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "test_training.py")
    path.write_text(TEST)
    with contextlib.redirect_stdout(io.StringIO()):
        code = pytest.main([str(path), "-q", "-p", "no:cacheprovider"])
    print(code)
