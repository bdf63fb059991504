"""Signals that the host sets and awaits on a stream, by address."""

from __future__ import annotations

from typing import Any

from ..runtime.foreign_streams import stream_handle
from ..runtime.streams import current_stream
from ..script_helpers import CUDA_CHECK, bindings


def set_signal(signal: int, value: int, stream: Any = None, require_i64: bool = False) -> None:
    """Store ``value`` into the word at address ``signal`` in stream order.

    stream: torch's, a driver handle, or None for the current one. require_i64: the word has 64 bits, else 32.
    """
    driver = bindings("driver")
    write = driver.cuStreamWriteValue64 if require_i64 else driver.cuStreamWriteValue32
    flags = driver.CUstreamWriteValue_flags.CU_STREAM_WRITE_VALUE_DEFAULT
    CUDA_CHECK(write(_handle(stream, "set_signal"), signal, value, flags))


def wait_eq(signal: int, value: int, stream: Any = None, require_i64: bool = False) -> None:
    """Hold the stream until the word at address ``signal`` is ``value``. Arguments as for ``set_signal``."""
    driver = bindings("driver")
    wait = driver.cuStreamWaitValue64 if require_i64 else driver.cuStreamWaitValue32
    flags = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ
    CUDA_CHECK(wait(_handle(stream, "wait_eq"), signal, value, flags))


def _handle(stream: Any, what: str) -> int:
    if stream is not None:
        return stream_handle(stream, what)
    here = current_stream().handle
    return here if isinstance(here, int) else here.cuda_stream
