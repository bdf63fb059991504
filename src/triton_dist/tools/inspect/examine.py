"""Compiles a kernel and puts its communication report together, from the IR before and after Triton's passes, PTX and machine code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import triton
from triton.backends.compiler import GPUTarget

from ...compiled_checks.guarded import Source, read_source
from ...compiled_checks.operations import (
    LOOPS,
    Flow,
    assembly,
    chain_of,
    is_load,
    is_poll,
    is_poll_loop,
    key_of_op,
    operations,
    shown,
    waits_in,
)
from ...compiled_checks.places import PTX_FRAMES, Key, user_frame
from ...compiled_checks.ptx import Instruction, Ptx
from ...compiled_checks.remote import Addresses
from ...compiled_checks.stages import Stages, compile_stages
from ...primitives.shared_ledger import bytes_in
from ...runtime.wait_layout import MARKER
from ...sim.ir import Operation
from ..compile_aot.generate import compile_for
from ..kernel_file import load_kernel
from ..kernel_signature import read_signature, read_target
from .instructions import block_barriers, bulk_copies, fences, mnemonic, order_of, ordered_instructions, outside_waits, waits
from .machine_code import examine_machine_code
from .report import CommunicationReport, Loop, RemoteAccess, Spin

_PRODUCTS = frozenset({"tt.dot", "tt.dot_scaled"})
_KINDS = {
    "tt.load": "load", "tt.descriptor_load": "load", "tt.descriptor_gather": "load", "tt.store": "store", "tt.descriptor_store": "store",
    "tt.descriptor_scatter": "store", "tt.descriptor_reduce": "atomic", "tt.atomic_rmw": "atomic", "tt.atomic_cas": "atomic",
}  # fmt: skip
_ADDRESS_OPS = frozenset({"arith.addi", "arith.subi", "tt.splat", "tt.broadcast", "tt.expand_dims"})
"""Ops that make an address of an address."""

_ASM_ADDRESS = re.compile(r"\b((?:ld|st|atom|red|multimem)\.[\w.:]+)[^\[]*\[\s*([$%]\w+)")
_ASM_SUM = re.compile(r"\b(?:add|sub|mad|mov|cvta)\.\S+\s+(%\w+),(.*)", re.DOTALL)
_ASM_TERM = re.compile(r"[$%]\w+")
_BUFFERS = re.compile(r"!ttg\.memdesc<(\d+)x")


def inspect_kernel(
    kernel: Any,
    signature: str | Sequence[str] | Mapping[str, str],
    constants: Mapping[str, Any] | None = None,
    *,
    target: str | int = "sm_90",
    **options: Any,
) -> CommunicationReport:
    """The communication report of a kernel as it is compiled for one signature. Needs no GPU.

    kernel: decorated by ``triton_dist.jit`` or ``triton.jit``, or its place: "file.py:kernel", "module:kernel".
    signature: an item for each argument that ``constants`` does not name: a type with a hint ("*bf16:16", "i32"), or a value.
    constants: values that are compiled in, by name. target: compute capability. options: num_warps, num_stages, ...
    Raises InvalidArgumentError, and what Triton raises for a kernel that does not compile.
    """
    read = read_signature(load_kernel(kernel) if isinstance(kernel, str) else kernel, signature, constants)
    arch = read_target(str(target))
    compiled = compile_for(read, GPUTarget("cuda", arch, 32), options)
    stages = compile_stages(read.source(), arch, options)
    ptx = Ptx(stages.ptx)
    instructions = outside_waits(ptx, stages.ptx)
    source = read_source(stages.source)
    remote, ways = _remote(source.tree, instructions)
    metadata = compiled.metadata
    return CommunicationReport(
        kernel=metadata.name,
        target=f"sm_{arch}",
        triton=triton.__version__,
        signature=read.text(),
        options={"num_warps": stages.options.num_warps, "num_stages": stages.options.num_stages, "num_ctas": stages.options.num_ctas},
        remote=remote,
        ordered=ordered_instructions(instructions, ways),
        fences=fences(instructions),
        barriers=block_barriers(instructions),
        spins=tuple(_spins(source.tree, ptx, stages.ptx)),
        bulk=bulk_copies(instructions),
        loops=tuple(_loops(source, stages)),
        resources=examine_machine_code(compiled.asm["cubin"], metadata.name, compiled.packed_metadata[2] + bytes_in(stages.ptx)[0]),
    )


def _remote(tree: Operation, instructions: Sequence[Instruction]) -> tuple[tuple[RemoteAccess, ...], dict[Key, str]]:
    """The accesses of other ranks' memory by line, and by key the way to that memory."""
    addresses = Addresses(tree)
    # Assembly may take an address as an integer.
    integers = [op.results[0] for op in operations(tree) if op.name == "tt.ptr_to_int" and op.operands[0] in addresses.remote]
    remote = addresses.remote | Flow(tree, _ADDRESS_OPS).reached(integers)
    by_key: dict[Key, list[Instruction]] = {}
    for one in instructions:
        by_key.setdefault(one.key, []).append(one)
    widths: dict[tuple[str, int, str, str], Counter[int | str]] = {}
    ways: dict[Key, str] = {}
    done: set[tuple[Key, str]] = set()
    for op in operations(tree):
        kinds = _kinds(op, remote)
        way = "symm_at" if kinds else "table"
        kinds = kinds or _kinds(op, addresses.loaded)
        key = key_of_op(op)[:PTX_FRAMES]
        if not kinds or not key:
            continue
        ways.setdefault(key, way)
        for kind, found in _moved(kinds, by_key.get(key, ())):
            if (key, kind) not in done:
                done.add((key, kind))
                place = shown(chain_of(op))
                widths.setdefault((place.file, place.line, kind, way), Counter()).update(found)
    rows = (RemoteAccess(*what, widths=dict(found)) for what, found in widths.items() if found)
    return tuple(sorted(rows, key=lambda row: (row.file, row.line, row.kind))), ways


def _kinds(op: Operation, values: Set[str]) -> frozenset[str]:
    """What an op does to memory to which ``values`` lead: "load", "store", "atomic". Assembly may do anything, a wait is left out."""
    if op.name in _KINDS:
        return frozenset({_KINDS[op.name]} if op.operands[0] in values else ())
    text = assembly(op)
    if not text or is_poll(op) or values.isdisjoint(op.operands):
        return frozenset()
    results = str(op.attributes.get("constraints", "")).count("=")
    leads = {f"${place + results}": operand in values for place, operand in enumerate(op.operands)}
    found = set()
    for statement in text.split(";"):
        computed = _ASM_SUM.search(statement)
        if computed:
            leads[computed[1]] = any(leads.get(term, False) for term in _ASM_TERM.findall(computed[2]))
        for name, term in _ASM_ADDRESS.findall(statement):
            kind = _kind(name)
            if kind is not None and leads.get(term, True):
                found.add(kind)
    return frozenset(found)


def _moved(kinds: Set[str], instructions: Iterable[Instruction]) -> Iterable[tuple[str, Counter[int | str]]]:
    """What instructions move, by kind; of some kinds only."""
    by_kind: dict[str, Counter[int | str]] = {}
    for one in instructions:
        name = mnemonic(one)
        kind = _kind(name)
        if kind is None or kind not in kinds:
            continue
        if name.startswith(("cp.async.bulk", "cp.reduce.async.bulk")):
            by_kind.setdefault(kind, Counter())["TMA"] += 1
        elif kind == "atomic":
            bits = int(re.sub(r"\D", "", name.split(".")[-1]) or 0)
            by_kind.setdefault(kind, Counter())[bits // 8] += 1
        elif one.bytes_a_thread:
            by_kind.setdefault(kind, Counter())[one.bytes_a_thread] += 1
    return by_kind.items()


def _kind(name: str) -> str | None:
    if name.startswith(("atom.", "red.", "cp.reduce.async.bulk", "multimem.red")):
        return "atomic"
    if name.startswith(("ld.", "multimem.ld")) or name.startswith("cp.async.c"):
        return None if ".shared" in name and not name.startswith("cp.") or ".param" in name else "load"
    if name.startswith("cp.async.bulk."):
        return "store" if re.search(r"global\.shared::\w+", name) else "load" if ".global" in name else None
    if name.startswith(("st.", "multimem.st")):
        return None if ".shared" in name or ".param" in name else "store"
    return None


def _spins(tree: Operation, ptx: Ptx, text: str) -> Iterable[Spin]:
    for one, semantic, scope, bits in waits(ptx, text):
        place = user_frame(one.frames)
        yield Spin(place.file if place else "", place.line if place else 0, semantic, scope, bits, own=False)
    for wait in waits_in(tree):
        if MARKER in assembly(wait.op):
            continue
        place = shown(wait.chain)
        key = wait.chain.key[:PTX_FRAMES]
        read = next((order for one in ptx.instructions() if one.key == key and (order := order_of(mnemonic(one)))), ("", ""))
        bits = next((kind.bits for kind in wait.op.result_types), 0)
        yield Spin(place.file, place.line, *read, bits, own=True)


def _loops(source: Source, stages: Stages) -> Iterable[Loop]:
    """Innermost loops with products; a loop of a function that is called twice is one if both are compiled alike."""
    seen: set[Loop] = set()
    for loop in operations(source.tree):
        if loop.name != "scf.for" or any(op.name in LOOPS and not is_poll_loop(op) for op in operations(loop)):
            continue
        products = [op for op in operations(loop) if op.name in _PRODUCTS]
        factors = {operand for op in products for operand in op.operands[:2]}
        loads = {
            key_of_op(op): op for op in operations(loop) if is_load(op) and not is_poll(op) and source.flow.reached(op.results) & factors
        }
        if not products:
            continue
        place = shown(chain_of(loop))
        depths = [_depth(stages.ttgir, key) for key in loads]
        found = Loop(
            place.file,
            place.line,
            loads=len(loads),
            buffers=min((buffers for buffers, _ in depths), default=1),
            pipelined=bool(depths) and all(buffers > 1 or ahead for buffers, ahead in depths),
            waits=len(waits_in(loop)),
        )
        if found not in seen:
            seen.add(found)
            yield found


def _depth(ttgir: Operation, key: Key) -> tuple[int, bool]:
    """Buffers of shared memory for a load, and whether it is there several times, that is, ahead of its loop, too."""
    alike = [op for op in operations(ttgir) if key_of_op(op) == key]
    sizes = [
        int(match[1])
        for op in alike
        if op.name == "ttg.local_alloc" and not op.operands
        for kind in op.result_types
        if (match := _BUFFERS.match(kind.element))
    ]
    return max(sizes, default=1), sum(is_load(op) for op in alike) > 1
