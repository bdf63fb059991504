"""Where the tiles of simt regions lie in a block's shared memory, beside what Triton lays out there.

Up to 48 KiB are variables of fixed size, which any launch has. What is more lies at the end of the memory whose size the launch gives,
behind Triton's own; so the launch has to ask for more than Triton does. ``triton_dist.jit`` sees to that when it has compiled a kernel.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from triton_dist.errors import PrimitiveArgumentError

UNIT = 1024
"""Everything here takes whole units of so many bytes: Triton's own memory begins behind it, and TMA needs that aligned so."""

MOST_STATIC = 48 * 1024
"""Bytes that a kernel's variables of fixed size may take, and that a block may take without asking for more."""

STATIC_NAME = "triton_dist_tiles_"
TAIL_NAME = "triton_dist_tail_"
"""How the variables are called in PTX, before a key or the number of bytes from the end."""

_LEDGER = "triton_dist.shared_ledger"
_FRONT_END = "ast_to_ttir"


def place(generator: Any, entry: tuple[str, int]) -> int:
    """Where a function's region lies: 0 for a variable of its own, else the bytes from its begin to the end of the launch's memory.

    entry: what regions share a place: a name of the function, and the bytes. Different entries never overlap, so that a region may call
    a function with a region. Raises PrimitiveArgumentError where there is no room for it.
    """
    # One dictionary serves all functions of a kernel while it is traced; this entry is no function's.
    ledger = generator.function_ret_types.setdefault(_LEDGER, {})
    if entry in ledger:
        return ledger[entry]
    static = sum(size for (_, size), end in ledger.items() if end == 0)
    if static + entry[1] <= MOST_STATIC:
        ledger[entry] = 0
    elif getattr(_kernel(), "enlarges_shared_memory", False):
        ledger[entry] = max(ledger.values(), default=0) + entry[1]
    else:
        raise PrimitiveArgumentError(
            f"the tiles of which simt regions name elements need {static + entry[1]} bytes of shared memory; more than {MOST_STATIC} bytes "
            "need a kernel that is decorated by triton_dist.jit itself: decorate it, or name elements of fewer or smaller tiles"
        )
    return ledger[entry]


def _kernel() -> Any:
    """The kernel that Triton's front end is tracing, further up the stack; None under a front end of another name."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == _FRONT_END and "src" in frame.f_locals:
            return frame.f_locals["src"].fn
        frame = frame.f_back  # type: ignore[assignment]
    return None


def bytes_in(ptx: str) -> tuple[int, int]:
    """Bytes of variables of fixed size, and bytes that the launch has to add to what Triton asks for, of a compiled kernel."""
    declared = [int(size) for size in re.findall(rf"\.shared \.align \d+ \.b8 (?:{STATIC_NAME}|{TAIL_NAME})\w+\[(\d+)\]", ptx)]
    tail = max((int(end) for end in re.findall(rf"\b{TAIL_NAME}(\d+)\b", ptx)), default=0)
    # A tail counts from behind the variable that shows the way, which may be the first of all.
    return sum(declared), tail + sum(declared) if tail else 0


def enlarge(kernel: Any, backend: Any) -> None:
    """Lets the launches of a compiled kernel ask for the shared memory that its regions need, if they need any.

    Called once, before the kernel is loaded. kernel: what Triton's ``compile`` returned. backend: Triton's backend, which packs metadata.
    """
    ptx = kernel.asm.get("ptx")
    if not isinstance(ptx, str) or not (STATIC_NAME in ptx or TAIL_NAME in ptx):
        return
    static, tail = bytes_in(ptx)
    metadata = kernel.metadata
    if tail:
        metadata = metadata._replace(shared=-(-metadata.shared // UNIT) * UNIT + tail)
        kernel.packed_metadata = backend.pack_metadata(metadata)
    if metadata.shared <= MOST_STATIC < metadata.shared + static:
        # This goes into loading, not into launches: above this size Triton lets the function have all that the GPU has.
        metadata = metadata._replace(shared=MOST_STATIC + 1)
    kernel.metadata = metadata
