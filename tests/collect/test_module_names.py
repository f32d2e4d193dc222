"""The names of running modules, as they go into the allocator's history."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from collect.injected.module_names import ModuleNames  # noqa: E402


class Block(torch.nn.Module):  # type: ignore[name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(2, 2), torch.nn.ReLU()

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x))


@pytest.fixture
def told() -> Iterator[list[str]]:
    names: list[str] = []
    ModuleNames(names.append)
    yield names
    torch.nn.modules.module._global_forward_pre_hooks.clear()
    torch.nn.modules.module._global_forward_hooks.clear()


def test_innermost_module_at_each_change(told: list[str]) -> None:
    model = torch.nn.Sequential(Block())
    model(torch.ones(1, 2))
    called = [
        "Sequential", "Sequential.0", "Sequential.0.first", "Sequential.0", "Sequential.0.second", "Sequential.0",
        "Sequential", "",
    ]  # fmt: skip
    assert told == called
    # The names of torch itself.
    assert {name for name, _ in model.named_modules(prefix="Sequential")} == set(called) - {""}
    told.clear()
    model[0].first(torch.ones(1, 2))  # as checkpointing calls a part again, in the backward pass
    assert told == ["Sequential.0.first", ""]


def test_module_that_fails_runs_no_longer(told: list[str]) -> None:
    with pytest.raises(RuntimeError):
        Block()(torch.ones(1, 3))
    assert told == ["Block", "Block.first", "Block", ""]


def test_threads_have_running_modules_of_their_own(told: list[str]) -> None:
    block = Block()

    class Outer(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            thread = threading.Thread(target=block.second, args=(x,))
            thread.start()
            thread.join()
            return x

    Outer()(torch.ones(1))
    assert told == ["Outer", "ReLU", "", ""]


def test_forked_child_tells_nothing(told: list[str]) -> None:
    pid = os.fork()
    if not pid:
        torch.nn.ReLU()(torch.ones(1))
        os._exit(len(told))
    assert os.waitpid(pid, 0)[1] == 0
