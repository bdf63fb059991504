"""A stand-in for NVSHMEM's device library: every function that the lowerings call, with its types and a body of one instruction."""

from __future__ import annotations

from pathlib import Path

from triton_dist.primitives import nvshmem
from triton_dist.primitives.bitcode import ADDRESS, Signature

_LEVELS = ("thread", "warp", "block")

_REGISTERS = {"ptr": "l", "i64": "l", "i32": "r", "i16": "h", "i8": "h"}


def all_signatures() -> list[Signature]:
    """Each function of NVSHMEM that a row of the table can become, once."""
    found = [nvshmem.signature(name) for name in ("remote_mc_ptr", "team_my_pe", "team_n_pes", "team_translate_pe")]
    found += [nvshmem.signature(name) for name in ("shmem_signal", "shmem_signal_wait", "shmem_quiet", "shmem_fence")]
    for level in _LEVELS:
        found += [nvshmem.signature(name, level, nbi) for name in ("shmem_put", "shmem_get", "shmem_put_signal") for nbi in (0, 1)]
        found += [nvshmem.signature("shmem_barrier", level, completes=completes) for completes in (0, 1)]
        found += [nvshmem.signature(name, level) for name in ("shmem_broadcast", "shmem_fcollect")]
    found += [nvshmem.signature(name, bits=bits) for name in ("shmem_p", "shmem_g") for bits in (8, 16, 32, 64)]
    return found


def _type(kind: str) -> str:
    return {"": "void", ADDRESS: "ptr"}.get(kind) or kind.replace("int", "i")


def write(path: Path) -> Path:
    """The library as a file in LLVM's text form. A function is not inlined, so that calls of it can be counted."""
    lines = ["@nvshmemi_device_state_d = addrspace(4) externally_initialized global [64 x i8] zeroinitializer, align 8"]
    for function in all_signatures():
        parameters = ", ".join(f"{_type(kind)} %a{place}" for place, kind in enumerate(function.operands))
        result = _type(function.result)
        value = {"void": "void", "ptr": "ptr null"}.get(result) or f"{result} 0"
        constraints = ",".join([*(_REGISTERS[_type(kind)] for kind in function.operands), "~{memory}"])
        body = f'  call void asm sideeffect "// {function.symbol}", "{constraints}"({parameters})\n  ret {value}'
        lines.append(f"define {result} @{function.symbol}({parameters}) noinline convergent {{\n{body}\n}}")
    path.write_text("\n".join(lines) + "\n")
    return path
