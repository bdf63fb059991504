"""Blocks of inline PTX that access memory, ask for their thread, or take several elements at once: as ``ptx_cases``, for one GPU.

Whatever the order of threads, what they leave is the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from tests.gpu.programs import Program
from tests.gpu.values import random_bits

_COUNT = 512
_VECTORS = {"": 1, ".v2": 2, ".v4": 4}


def _words(seed: int, count: int = _COUNT, dtype: str = "int32") -> np.ndarray:
    return random_bits(count * 2, seed).view(np.int64)[:count].astype(dtype)


def _kernel(parameters: str, *lines: str) -> str:
    return f"@triton.jit\ndef kernel({parameters}):\n" + "".join(f"    {line}\n" for line in lines)


def _asm(text: str, constraints: str, operands: str, types: str, pack: int = 1, pure: bool = False) -> str:
    return f"tl.inline_asm_elementwise({text!r}, {constraints!r}, [{operands}], dtype={types}, is_pure={pure}, pack={pack})"


_LOADS = (
    "ld.global", "ld", "ld.weak.global", "ld.global.nc", "ld.global.ca", "ld.global.cg", "ld.global.cs", "ld.global.cv",
    "ld.volatile.global", "ld.relaxed.cta.global", "ld.relaxed.gpu.global", "ld.relaxed.sys.global",
    "ld.acquire.gpu.global", "ld.acquire.sys.global",
    "ld.global.L1::no_allocate", "ld.global.nc.L1::no_allocate.L2::128B", "ld.global.L1::evict_last.L2::256B", "ld.relaxed.cluster.global",
)  # fmt: skip


def load_programs() -> Iterator[Program]:
    """Every form of ld, of 32 and 64 bits and as vectors; of 8 and 16 bits with their sign."""
    for number, form in enumerate(_LOADS):
        for bits in (32, 64):
            for vector, count in _VECTORS.items():
                if bits * count <= 128:
                    yield _load_program(f"loads.{number}.b{bits}{vector}", f"{form}{vector}.b{bits}", bits, count)
    for kind in ("u8", "s8", "u16", "s16"):
        text = f"{{ .reg .b32 %x; ld.global.{kind} %x, [$1+2]; mov.b32 $0, %x; }}"
        source = _kernel(
            "source, out, BLOCK: tl.constexpr",
            "i = tl.arange(0, BLOCK)",
            f"tl.store(out + i, {_asm(text, '=r,l', 'source + i', 'tl.int32')})",
        )
        yield Program(f"loads.{kind}", source, {"source": _words(3, _COUNT + 1)}, {"out": np.zeros(_COUNT, np.int32)}, {"BLOCK": _COUNT})


def _load_program(name: str, form: str, bits: int, count: int) -> Program:
    results = ", ".join(f"${place}" for place in range(count))
    results = f"{{{results}}}" if count > 1 else results
    letter = "r" if bits == 32 else "l"
    types = f"tl.int{bits}" if count == 1 else "(" + ", ".join([f"tl.int{bits}"] * count) + ")"
    names = [f"x{place}" for place in range(count)]
    source = _kernel(
        "source, out, BLOCK: tl.constexpr",
        "i = tl.arange(0, BLOCK)",
        f"{', '.join(names)} = " + _asm(f"{form} {results}, [${count}];", f"{f'={letter},' * count}l", f"source + i * {count}", types),
        *(f"tl.store(out + i * {count} + {place}, {one})" for place, one in enumerate(names)),
    )
    total = _COUNT * count
    return Program(
        name, source, {"source": _words(5, total, f"int{bits}")}, {"out": np.zeros(total, f"int{bits}")}, {"BLOCK": _COUNT},
        labels={"out": form},
    )  # fmt: skip


_STORES = (
    "st.global", "st", "st.weak.global", "st.global.wb", "st.global.cg", "st.global.cs", "st.global.wt", "st.volatile.global",
    "st.relaxed.cta.global", "st.relaxed.gpu.global", "st.relaxed.sys.global", "st.release.gpu.global", "st.release.sys.global",
    "st.global.L1::no_allocate", "st.relaxed.cluster.global",
)  # fmt: skip


def store_programs() -> Iterator[Program]:
    """Every form of st, of 32 and 64 bits and as vectors; of 8 and 16 bits."""
    for number, form in enumerate(_STORES):
        for bits in (32, 64):
            for vector, count in _VECTORS.items():
                if bits * count > 128:
                    continue
                letter = "r" if bits == 32 else "l"
                values = ", ".join(f"${2 + place}" for place in range(count))
                text = f"{form}{vector}.b{bits} [$1], {f'{{{values}}}' if count > 1 else values}; mov.u32 $0, 0;"
                source = _kernel(
                    "source, out, BLOCK: tl.constexpr",
                    "i = tl.arange(0, BLOCK)",
                    *(f"x{place} = tl.load(source + i * {count} + {place})" for place in range(count)),
                    _asm(
                        text,
                        f"=r,l{f',{letter}' * count}",
                        f"out + i * {count}, " + ", ".join(f"x{place}" for place in range(count)),
                        "tl.int32",
                    ),
                )
                total = _COUNT * count
                yield Program(
                    f"stores.{number}.b{bits}{vector}", source, {"source": _words(7, total, f"int{bits}")},
                    {"out": np.zeros(total, f"int{bits}")}, {"BLOCK": _COUNT}, labels={"out": text},
                )  # fmt: skip
    for kind, step in (("u8", 1), ("b8", 1), ("u16", 2), ("s16", 2)):
        text = f"st.global.{kind} [$1], $2; mov.u32 $0, 0;"
        source = _kernel(
            "source, out, BLOCK: tl.constexpr",
            "i = tl.arange(0, BLOCK)",
            f"place = out.to(tl.pointer_type(tl.int{8 * step})) + i",
            _asm(text, "=r,l,r", "place, tl.load(source + i)", "tl.int32"),
        )
        yield Program(
            f"stores.{kind}", source, {"source": _words(9)}, {"out": np.zeros(_COUNT, np.int32)}, {"BLOCK": _COUNT}, labels={"out": text}
        )


_UPDATES = {
    "add": ("u32", "s32", "u64", "f32", "f64", "f16x2", "bf16x2"),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "exch": ("b32", "b64"),
    "cas": ("b32", "b64"),
}
_ORDERS = ("", ".relaxed.gpu", ".acquire.sys", ".release.gpu", ".acq_rel.sys", ".relaxed.cta")


def update_programs() -> Iterator[Program]:
    """atom and red, each element by one thread: what was there, and what is left."""
    for name, kinds in _UPDATES.items():
        for number, kind in enumerate(kinds):
            order = _ORDERS[(number + len(name)) % len(_ORDERS)]
            bits = 64 if kind.endswith("64") else 32
            letter = "r" if bits == 32 else "l"
            rounding = ".noftz" if "16" in kind else ""
            also = ", $3" if name == "cas" else ""
            text = f"atom{order}.global.{name}{rounding}.{kind} $0, [$1], $2{also};"
            yield _update(f"updates.{name}.{kind}", text, kind, bits, letter, name)
            if name not in ("exch", "cas"):
                order = order if "acq" not in order else ".release.sys"
                text = f"red{order}.global.{name}{rounding}.{kind} [$1], $2; mov.b{bits} $0, 0;"
                yield _update(f"updates.red.{name}.{kind}", text, kind, bits, letter, name)


def _update(name: str, text: str, kind: str, bits: int, letter: str, operation: str) -> Program:
    seed = len(name)
    before, values = _words(seed, _COUNT, f"int{bits}"), _words(seed + 1, _COUNT, f"int{bits}")
    if kind in ("f32", "f64", "f16x2", "bf16x2"):
        before, values = (_small_floats(array, kind) for array in (before, values))
    if operation in ("inc", "dec"):
        before, values = before & 7, values & 7
    if operation == "cas":
        values = np.where(np.arange(_COUNT) % 2 == 0, before, values)
    source = _kernel(
        "values, words, out, BLOCK: tl.constexpr",
        "i = tl.arange(0, BLOCK)",
        "old = " + _asm(text, f"={letter},l,{letter},{letter}", f"words + i, tl.load(values + i), i.to(tl.int{bits})", f"tl.int{bits}"),
        "tl.store(out + i, old)",
    )
    outputs = {"words": before, "out": np.zeros(_COUNT, f"int{bits}")}
    # As many threads as elements: none is in two threads.
    return Program(name, source, {"values": values}, outputs, {"BLOCK": _COUNT}, labels={"words": text, "out": text}, num_warps=16)


def _small_floats(bits: np.ndarray, kind: str) -> np.ndarray:
    """Finite numbers of ordinary size, as bits."""
    numbers = (bits % 1000) / 8.0
    if kind == "f64":
        return numbers.astype(np.float64).view(np.int64)
    if kind == "f32":
        return numbers.astype(np.float32).view(np.int32)
    half = numbers.astype(np.float16 if kind == "f16x2" else ml_dtypes.bfloat16).view(np.uint16)
    return (half.astype(np.uint32) | half.astype(np.uint32)[::-1] << np.uint32(16)).view(np.int32)


_OWN = "{ .reg .u64 %a; .reg .u32 %t, %o; mov.u32 %t, %tid.x; mad.wide.u32 %a, %t, 4, $1; "
"""A block in which each thread has its index and the address of a word of its own."""

_IF = "{ .reg .pred %p; .reg .u32 %t; "
_END = " mov.u32 $0, 0; }"

_PER_THREAD = {
    "every thread": "red.relaxed.gpu.global.add.u32 [$1], 1; mov.u32 $0, 0;",
    "first thread": _IF + "mov.u32 %t, %tid.x; setp.eq.u32 %p, %t, 0; @%p red.global.add.u32 [$1], 1;" + _END,
    "one of a warp": _IF + "mov.u32 %t, %laneid; setp.eq.u32 %p, %t, 5; mov.u32 %t, %ntid.x; @%p red.global.add.u32 [$1], %t;" + _END,
    "each its own": _OWN + "red.global.add.u32 [%a+4], %t;" + _END,
    "behind a barrier": _OWN + "st.global.u32 [%a], %t; bar.sync 0; xor.b32 %o, %t, 64; mad.wide.u32 %a, %o, 4, $1;"
    " ld.global.u32 %o, [%a]; bar.sync 0; mad.wide.u32 %a, %t, 4, $1; st.global.u32 [%a], %o;" + _END,
    "behind a barrier of a warp": _OWN + "st.global.u32 [%a], %t; bar.warp.sync 0xffffffff; xor.b32 %o, %t, 1;"
    " mad.wide.u32 %a, %o, 4, $1; ld.global.u32 %o, [%a]; bar.warp.sync 0xffffffff; mad.wide.u32 %a, %t, 4, $1;"
    " st.global.u32 [%a], %o;" + _END,
    "lane masks": _OWN + "mov.u32 %o, %lanemask_lt; st.global.u32 [%a], %o; mov.u32 %o, %lanemask_ge; red.global.xor.b32 [%a], %o;" + _END,
}


def thread_programs() -> Iterator[Program]:
    """Scalar blocks, which every thread runs, and tiles smaller than a block, which several threads have."""
    for name, text in _PER_THREAD.items():
        source = _kernel("words", _asm(text, "=r,l", "words", "tl.int32"))
        yield Program(f"threads.{name.replace(' ', '_')}", source, {}, {"words": np.zeros(512, np.int32)}, labels={"words": name})
    for block in (4, 32, 128):
        text = "red.global.add.u32 [$1], 1; mov.u32 $0, %tid.x; and.b32 $0, $0, 3;"
        source = _kernel(
            "words, out, BLOCK: tl.constexpr",
            "i = tl.arange(0, BLOCK)",
            f"tl.store(out + i, {_asm(text, '=r,l', 'words + i', 'tl.int32')})",
        )
        outputs = {"words": np.zeros(block, np.int32), "out": np.zeros(block, np.int32)}
        yield Program(f"threads.tile_of_{block}", source, {}, outputs, {"BLOCK": block}, labels={"words": text, "out": text})
    yield from _layout_programs()


_TELL = "{ .reg .u32 %t; mov.u32 %t, %tid.x; red.global.add.u32 [$1], 1; st.global.u32 [$2], %t; mov.u32 $0, 0; }"
"""Counts how often an element is visited, and tells by which thread."""


def _layout_programs() -> Iterator[Program]:
    """Tiles with several elements a thread: the compiler lays them out as the loads around the block want it, or in its default way."""
    tiles = {
        "default": ("tl.arange(0, 512)", "i * 1"),
        "behind_a_load": ("tl.arange(0, 512)", "tl.load(source + i)"),
        "of_two_axes": ("tl.arange(0, 16)[:, None] * 32 + tl.arange(0, 32)[None, :]", "tl.load(source + i)"),
        "across": ("tl.arange(0, 16)[:, None] + tl.arange(0, 32)[None, :] * 16", "tl.load(source + i)"),
    }
    for name, (elements, index) in tiles.items():
        source = _kernel("source, words, out", f"i = {elements}", f"k = {index}", _asm(_TELL, "=r,l,l", "words + k, out + k", "tl.int32"))
        outputs = {"words": np.zeros(512, np.int32), "out": np.zeros(512, np.int32)}
        places = {"source": np.arange(512, dtype=np.int32)}
        yield Program(f"threads.tile_{name}", source, places, outputs, labels={"words": _TELL, "out": _TELL})


_PACKED = {
    ("int8", 2): ("{ .reg .b32 %x; xor.b32 %x, $1, $2; not.b32 $0, %x; }", "=r,r,r"),
    ("int16", 2): ("add.u16x2 $0, $1, $2;", "=r,r,r"),
    ("float16", 2): ("fma.rn.f16x2 $0, $1, $2, $1;", "=r,r,r"),
    ("bfloat16", 2): ("max.bf16x2 $0, $1, $2;", "=r,r,r"),
    ("float16", 4): ("add.f16x2 $0, $2, $4; add.f16x2 $1, $3, $5;", "=r,=r,r,r,r,r"),
    ("float32", 2): ("mul.f32 $0, $2, $4; mul.f32 $1, $3, $5;", "=f,=f,f,f,f,f"),
    ("int64", 1): ("add.u64 $0, $1, $2;", "=l,l,l"),
    ("int8", 1): ("add.u32 $0, $1, $2;", "=r,r,r"),
    ("float16", 1): ("mul.f16 $0, $1, $2;", "=h,h,h"),
}


def pack_programs() -> Iterator[Program]:
    """Small types, several in a register. Which elements meet is not specified: each block treats all alike."""
    for (kind, pack), (text, constraints) in _PACKED.items():
        source = _kernel(
            "a, b, out, BLOCK: tl.constexpr",
            "i = tl.arange(0, BLOCK)",
            f"tl.store(out + i, {_asm(text, constraints, 'tl.load(a + i), tl.load(b + i)', f'tl.{kind}', pack, True)})",
        )
        dtype = np.dtype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind)
        operands = {name: _words(seed, _COUNT, f"int{8 * dtype.itemsize}").view(dtype) for name, seed in (("a", 11), ("b", 12))}
        yield Program(f"pack.{kind}.{pack}", source, operands, {"out": np.zeros(_COUNT, dtype)}, {"BLOCK": _COUNT}, labels={"out": text})


FAMILIES = {
    "loads": load_programs,
    "stores": store_programs,
    "updates": update_programs,
    "threads": thread_programs,
    "pack": pack_programs,
}
