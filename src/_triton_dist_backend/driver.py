"""The driver half of the simulator's Triton back end: says whether it is active, and builds the real driver on first use."""

from __future__ import annotations

import os
import sys

from triton.backends.driver import DriverBase


def _no_gpu() -> bool:
    try:
        import torch

        return not torch.cuda.is_available()
    except Exception:  # a broken torch must not break `import triton`
        return True


class SimDriverEntry(DriverBase):
    """What Triton finds and calls for a driver; gives a ``SimDriver``.

    Active only when asked for by ``TRITON_DIST_SIMULATE=1``, or when ``triton_dist`` is imported on a machine with no GPU.
    """

    def __new__(cls):
        from triton_dist.sim.driver import SimDriver

        return SimDriver()

    @classmethod
    def is_active(cls) -> bool:
        if os.environ.get("TRITON_DIST_SIMULATE", "") not in ("", "0"):
            return True
        return "triton_dist" in sys.modules and _no_gpu()

    # Triton passes over a class with abstract methods when it looks for drivers. Nothing calls these: ``__new__`` gives a SimDriver.

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError

    def get_current_target(self):
        raise NotImplementedError

    def get_active_torch_device(self):
        raise NotImplementedError

    def get_benchmarker(self):
        raise NotImplementedError
