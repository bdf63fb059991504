"""Where the program of this process stands, as seen from another thread."""

from __future__ import annotations

import sys
import threading
from types import FrameType


def inside_torch_distributed() -> str | None:
    """Which function of ``torch.distributed`` the main thread is in, and who called it; None if it is not in one."""
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
    inside: FrameType | None = None
    while frame is not None and frame.f_globals.get("__name__", "").startswith("torch.distributed"):
        inside, frame = frame, frame.f_back
    if inside is None:
        return None
    name = inside.f_code.co_name
    if name == "wrapper":
        name = getattr(inside.f_locals.get("func"), "__name__", name)
    return f"torch.distributed.{name}" + (f" called at {frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "")
