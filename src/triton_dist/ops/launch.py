"""A kernel with its arguments, to be launched later; and loading kernels before one that waits is launched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Launch:
    """A kernel, the number of its programs and its arguments."""

    kernel: Any
    programs: int
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    @classmethod
    def of(cls, kernel: Any, programs: int) -> Callable[..., Launch]:
        """``Launch.of(kernel, programs)(*arguments, **options)`` reads as the launch itself would."""
        return lambda *arguments, **options: cls(kernel, programs, arguments, options)

    def run(self) -> None:
        """Launch it on the current stream."""
        self.kernel[(self.programs,)](*self.arguments, **self.options)

    def load(self) -> None:
        """Compile the kernel and load its code onto the device."""
        compiled = self.kernel.warmup(*self.arguments, grid=(self.programs,), **self.options)
        compiled._init_handles()


def load_before_waiting(*launches: Launch) -> None:
    """Load the kernels of launches that wait for each other: the driver may not load one while another runs that waits for it."""
    for launch in launches:
        launch.load()
