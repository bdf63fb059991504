"""What the simulator has not of torch's CUDA: refusals that name the function which the script called."""

from __future__ import annotations

import ast
import linecache
import sys
from itertools import islice
from types import FrameType
from typing import Any

from ...errors import MissingNameError, UnsupportedOperationError
from .streams import here

_NATIVE = ("_cuda", "_nccl", "_cudnn")
"""How names of ``torch._C`` begin that only a build of torch for CUDA has."""


def unsupported(name: str) -> type:
    """A name of ``torch.cuda`` that raises when it is called. As a class it may stand in annotations and in ``isinstance``."""

    def refuse(cls: type, *_arguments: Any, **_options: Any) -> None:
        raise UnsupportedOperationError(_no_meaning(f"torch.cuda.{name}"))

    return type(name, (), {"__new__": refuse})


def no_device_code(*_arguments: Any, **_options: Any) -> None:
    """In place of ``torch.cuda._lazy_init``: whoever comes here is about to run code of a real GPU."""
    name = called(sys._getframe(1))
    here(name)
    raise UnsupportedOperationError(_no_meaning(name))


def native_name(name: str) -> Any:
    """``__getattr__`` of ``torch._C``: a function that this build of torch has not is refused, and ``hasattr`` says so."""
    if not name.startswith(_NATIVE):
        raise AttributeError(f"module 'torch._C' has no attribute {name!r}")
    raise MissingNameError(_no_meaning(called(sys._getframe(1))))


def _no_meaning(name: str) -> str:
    return f"{name} has no meaning on the simulator; leave it out under triton-dist run"


def called(frame: FrameType | None) -> str:
    """What the script called, as its text has it, or torch's function where there is no text. frame: of the script or of torch."""
    name = "a function of CUDA"
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.split(".")[0] not in ("torch", "triton_dist"):
            return _text(frame) or name
        if module.startswith("torch"):
            name = f"{module}.{frame.f_code.co_name}"
        frame = frame.f_back
    return name


def _text(frame: FrameType) -> str | None:
    """The function of the call, or the name, that ``frame`` is at."""
    line, end_line, begin, end = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    if line is None or end_line is None or begin is None or end is None:
        return None
    lines = [linecache.getline(frame.f_code.co_filename, number).encode() for number in range(line, end_line + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    try:
        asked = ast.parse(b"".join(lines).decode().strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    return ast.unparse(asked.func if isinstance(asked, ast.Call) else asked)
