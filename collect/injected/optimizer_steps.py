"""Detects the optimizer steps that count as training steps."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .module_calls import call_before_next_module, in_backward
from .nesting import Nesting
from .torch_internals import find


class OptimizerSteps:
    """Calls `on_step` at the end of each training step.

    A training step is a step of the program's first optimizer, or of the next one once the first was deleted (another
    fold, another training). Other optimizers do not count: a GAN's second one would count each iteration twice.
    """

    def __init__(self, on_step: Callable[[], None], inactive: Callable[[], bool]) -> None:
        """Patch torch's optimizers. Nothing is detected while `inactive` returns True."""
        self._on_step = on_step
        self._inactive = inactive
        self._counted: Any = None
        """Weak reference to the optimizer that counts: a strong one would keep it and its model alive."""
        self._nesting = Nesting()
        self._in_backward = False
        """Whether the optimizer has stepped in a backward pass that has not ended yet."""
        self._patch()

    def end_of_program(self) -> None:
        """Count the step whose end was not detected: the program ended where the next module call would have been."""
        if self._in_backward:
            self._end_step()

    def _patch(self) -> None:
        """Call back once an optimizer's step has returned.

        torch's own post hook runs inside the step's record_function range. A profiler that stops there frees memory
        that the end of the range still writes to.
        """
        from torch.optim import Optimizer

        original = find("torch.optim.Optimizer.profile_hook_step")
        if original is None:
            return
        counting = _Counting(self)

        def profile_hook_step(step: Any) -> Any:
            hooked = original(step)

            @functools.wraps(hooked)
            def counted_step(*args: Any, **kwargs: Any) -> Any:
                with counting(args[0]):
                    return hooked(*args, **kwargs)

            return counted_step

        Optimizer.profile_hook_step = staticmethod(profile_hook_step)

    @contextlib.contextmanager
    def around_step(self, optimizer: Any) -> Iterator[None]:
        """Count the step that ends with this block, unless another optimizer makes it inside its own step."""
        self._nesting.enter()
        try:
            yield
        finally:
            is_outermost = self._nesting.leave()
        if is_outermost and not self._inactive():
            self._after_step(optimizer)

    def _after_step(self, optimizer: Any) -> None:
        if self._counted is None or self._counted() is None:
            self._counted = weakref.ref(optimizer)
        elif optimizer is not self._counted():
            return
        if not in_backward():
            self._end_step()
        elif not self._in_backward:
            # Optimizers that step as gradients arrive: the training step lasts until the backward pass has ended.
            self._in_backward = True
            call_before_next_module(self._end_step)

    def _end_step(self) -> None:
        if self._inactive():
            return
        self._in_backward = False
        self._on_step()


class _Counting:
    """Stands in the closure of each optimizer's step for `OptimizerSteps.around_step`.

    cloudpickle copies the step of an optimizer that is defined in `__main__`, with its closure. The copy gets a block
    that does nothing: the process that reads it may be without `collect`.
    """

    def __init__(self, steps: OptimizerSteps) -> None:
        self._steps = steps

    def __call__(self, optimizer: Any) -> contextlib.AbstractContextManager[None]:
        return self._steps.around_step(optimizer)

    def __reduce__(self) -> Any:
        return getattr, (contextlib, "nullcontext")
