"""The counter that every DSL's hook shares: how often its kernels were called, and whether they are held back."""

from collections.abc import Callable
from typing import Any


class Tally:
    """Calls of the DSL's compiled kernels by this child; while `held` they do nothing."""

    def __init__(self) -> None:
        self.n_calls = 0
        self.held = False

    def around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`original` counted; held back, it returns None and leaves every buffer as it was."""

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.n_calls += 1
            return None if self.held else original(*args, **kwargs)

        return counted
