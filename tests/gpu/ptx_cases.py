"""Blocks of inline PTX by family of instructions, and random ones: programs that run the same on a GPU and on the simulator.

A case takes registers ``$1``, ... behind its results. Types are ``u``, ``s`` and ``f`` with a width, or packed pairs; what is written is
compared as numbers of its type, one NaN being as good as another.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tests.gpu.programs import Program
from tests.gpu.values import operand_sets

_TRITON = {
    **{f"{kind}{bits}": f"int{bits}" for kind in "us" for bits in (16, 32, 64)},
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "f16x2": "int32", "bf16x2": "int32",
}  # fmt: skip
_VALUES = {
    **{f"{kind}{bits}": f"{'u' if kind == 'u' else ''}int{bits}" for kind in "us" for bits in (16, 32, 64)},
    "f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "f16x2": "uint32", "bf16x2": "uint32",
}  # fmt: skip
_LETTERS = {16: "h", 32: "r", 64: "l"}
_BLOCK = 512
_TOGETHER = 8


@dataclass(frozen=True)
class Case:
    """A block that only computes. gives, takes: types of results and operands."""

    text: str
    gives: tuple[str, ...]
    takes: tuple[str, ...]

    @property
    def constraints(self) -> str:
        return ",".join([*(f"=&{_LETTERS[width(kind)]}" for kind in self.gives), *(_LETTERS[width(kind)] for kind in self.takes)])


@dataclass
class Family:
    """Cases of one kind, and programs of it that do more than compute. close: whether results may differ in the last bits."""

    cases: list[Case] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    close: bool = False


def width(kind: str) -> int:
    """Bits of a type."""
    return 32 if kind.endswith("x2") else int("".join(one for one in kind if one.isdigit()))


def bits_type(kind: str) -> np.dtype:
    """The array that a result is compared in; a pair is compared as two numbers, see ``ptx_program``."""
    names = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
    return np.dtype(names.get(kind, f"int{width(kind)}"))


def operand(kind: str, seed: int) -> np.ndarray:
    """Edge values and random bits, as the integers that a register holds."""
    (values,) = operand_sets((_VALUES[kind],), 2 * _BLOCK, seed)
    mixed = np.random.default_rng(seed).permutation(np.resize(values, 2 * _BLOCK))
    raw = np.ascontiguousarray(mixed).view(f"i{mixed.dtype.itemsize}")
    if kind in ("f16x2", "bf16x2"):
        halves = [operand(kind[:-2], seed + number).view(np.uint16).astype(np.uint32) for number in (7, 13)]
        return (halves[0] | halves[1] << np.uint32(16)).view(np.int32)
    return raw


def programs_of(name: str, cases: list[Case]) -> Iterator[Program]:
    """Programs that evaluate cases, several with the same operands in one kernel.

    Upper and lower halves of products of 64 bits are in kernels of their own, because of ptxas, see ``ptx_compiler``.
    """
    groups: dict[tuple[tuple[str, ...], bool], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.takes, _has_upper_product(case)), []).append(case)
    for (takes, upper), group in groups.items():
        for start in range(0, len(group), _TOGETHER):
            label = f"{name}.{'_'.join(takes) or 'none'}.{'upper.' if upper else ''}{start // _TOGETHER}"
            yield program(label, takes, group[start : start + _TOGETHER])


def _has_upper_product(case: Case) -> bool:
    return any(f"{name}.hi.{kind}" in case.text for name in ("mul", "mad") for kind in ("u64", "s64"))


def program(name: str, takes: tuple[str, ...], cases: list[Case]) -> Program:
    """One kernel that evaluates cases with the same operands."""
    letters = "abcde"[: len(takes)]
    outputs: dict[str, np.ndarray] = {}
    labels: dict[str, str] = {}
    body = [f"    {letter} = tl.load({letter}_ptr + i)" for letter in letters]
    for number, case in enumerate(cases):
        names = [f"out{number}_{place}" for place in range(len(case.gives))]
        types = ", ".join(f"tl.{_TRITON[kind]}" for kind in case.gives)
        targets = ", ".join(f"r{one}" for one in names)
        body.append(
            f"    {targets} = tl.inline_asm_elementwise({case.text!r}, {case.constraints!r}, [{', '.join(letters)}], "
            f"dtype={types if len(names) == 1 else f'({types})'}, is_pure=True, pack=1)"
        )
        for one, kind in zip(names, case.gives, strict=True):
            body.append(f"    tl.store({one} + i, r{one})")
            outputs[one] = np.zeros(2 * _BLOCK, bits_type(kind))
            labels[one] = f"{kind}: {case.text}"
    parameters = ", ".join([*(f"{letter}_ptr" for letter in letters), *outputs, "BLOCK: tl.constexpr"])
    source = f"@triton.jit\ndef kernel({parameters}):\n    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n" + "\n".join(body) + "\n"
    inputs = {letter: operand(kind, 10 * place + 1) for place, (letter, kind) in enumerate(zip(letters, takes, strict=True))}
    return Program(name, source, inputs, outputs, {"BLOCK": _BLOCK}, (2,), labels)


def _guarded(text: str, kind: str) -> str:
    """A block whose second operand is not 0: what a division by it gives is not specified."""
    bits = width(kind)
    return f"{{ .reg .b{bits} %d; or.b{bits} %d, $2, 1; {text} }}"


_INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
_WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def integer_cases() -> Iterator[Case]:
    """add to dp4a."""
    for kind in _INTEGERS:
        for name in ("add", "sub", "min", "max", "mul.lo", "mul.hi"):
            yield Case(f"{name}.{kind} $0, $1, $2;", (kind,), (kind, kind))
        for name in ("div", "rem"):
            yield Case(_guarded(f"{name}.{kind} $0, $1, %d;", kind), (kind,), (kind, kind))
        for name in ("mad.lo", "mad.hi", "sad"):
            if not (name == "mad.hi" and kind[1:] == "16"):
                yield Case(f"{name}.{kind} $0, $1, $2, $3;", (kind,), (kind, kind, kind))
        if kind in _WIDE:
            yield Case(f"mul.wide.{kind} $0, $1, $2;", (_WIDE[kind],), (kind, kind))
            yield Case(f"mad.wide.{kind} $0, $1, $2, $3;", (_WIDE[kind],), (kind, kind, _WIDE[kind]))
        if kind[0] == "s":
            yield Case(f"abs.{kind} $0, $1;", (kind,), (kind,))
            yield Case(f"neg.{kind} $0, $1;", (kind,), (kind,))
    for half in ("lo", "hi"):
        for kind in ("u32", "s32"):
            yield Case(f"mul24.{half}.{kind} $0, $1, $2;", (kind,), (kind, kind))
            yield Case(f"mad24.{half}.{kind} $0, $1, $2, $3;", (kind,), (kind, kind, kind))
    yield Case("add.sat.s32 $0, $1, $2;", ("s32",), ("s32", "s32"))
    yield Case("sub.sat.s32 $0, $1, $2;", ("s32",), ("s32", "s32"))
    yield Case("mad.hi.sat.s32 $0, $1, $2, $3;", ("s32",), ("s32", "s32", "s32"))
    for first in ("u32", "s32"):
        for second in ("u32", "s32"):
            yield Case(f"dp4a.{first}.{second} $0, $1, $2, $3;", ("s32",), ("s32", "s32", "s32"))
            yield Case(f"dp2a.lo.{first}.{second} $0, $1, $2, $3;", ("s32",), ("s32", "s32", "s32"))
            yield Case(f"dp2a.hi.{first}.{second} $0, $1, $2, $3;", ("s32",), ("s32", "s32", "s32"))


def carry_cases() -> Iterator[Case]:
    """Sums of two words by way of the carry flag."""
    for kind in ("u32", "u64"):
        three = (kind, kind, kind)
        yield Case(f"add.cc.{kind} $0, $2, $3; addc.{kind} $1, $3, $4;", (kind, kind), three)
        yield Case(f"sub.cc.{kind} $0, $2, $3; subc.{kind} $1, $3, $4;", (kind, kind), three)
        yield Case(f"add.cc.{kind} $0, $1, $2; addc.cc.{kind} $0, $2, $3; addc.{kind} $0, $1, 0;", (kind,), three)
        yield Case(f"mad.lo.cc.{kind} $0, $2, $3, $4; madc.hi.{kind} $1, $2, $3, 0;", (kind, kind), three)


def bit_cases() -> Iterator[Case]:
    """Logic, shifts, fields, counts, permutations."""
    for kind in ("16", "32", "64"):
        word, pair = f"u{kind}", (f"u{kind}", f"u{kind}")
        for name in ("and", "or", "xor"):
            yield Case(f"{name}.b{kind} $0, $1, $2;", (word,), pair)
        yield Case(f"not.b{kind} $0, $1;", (word,), (word,))
        yield Case(f"cnot.b{kind} $0, $1;", (word,), (word,))
        for shift in (f"shl.b{kind}", f"shr.u{kind}", f"shr.s{kind}", f"shr.b{kind}"):
            yield Case(f"{shift} $0, $1, $2;", (word,), (word, "u32"))
            yield Case(f"{{ .reg .u32 %n; and.b32 %n, $2, 63; {shift} $0, $1, %n; }}", (word,), (word, "u32"))
    for kind in ("32", "64"):
        word = f"u{kind}"
        for name in ("popc", "clz"):
            yield Case(f"{name}.b{kind} $0, $1;", ("u32",), (word,))
        yield Case(f"brev.b{kind} $0, $1;", (word,), (word,))
        for sign in "us":
            small = "{ .reg .u32 %p, %n; and.b32 %p, $2, 127; and.b32 %n, $3, 127; "
            byte = "{ .reg .u32 %p, %n; and.b32 %p, $2, 255; and.b32 %n, $3, 255; "
            yield Case(byte + f"bfe.{sign}{kind} $0, $1, %p, %n; }}", (word,), (word, "u32", "u32"))
            yield Case(small + f"bfe.{sign}{kind} $0, $1, %p, %n; }}", (word,), (word, "u32", "u32"))
            yield Case(f"bfind.{sign}{kind} $0, $1;", ("u32",), (word,))
            yield Case(f"bfind.shiftamt.{sign}{kind} $0, $1;", ("u32",), (word,))
        yield Case(
            f"{{ .reg .u32 %p, %n; and.b32 %p, $3, 127; and.b32 %n, $4, 127; bfi.b{kind} $0, $1, $2, %p, %n; }}",
            (word,), (word, word, "u32", "u32"),
        )  # fmt: skip
    three = ("u32", "u32", "u32")
    for side in "lr":
        for mode in ("wrap", "clamp"):
            yield Case(f"shf.{side}.{mode}.b32 $0, $1, $2, $3;", ("u32",), three)
            yield Case(f"{{ .reg .u32 %n; and.b32 %n, $3, 63; shf.{side}.{mode}.b32 $0, $1, $2, %n; }}", ("u32",), three)
    for table in (0x00, 0x3A, 0x80, 0x96, 0xCA, 0xE8, 0xF8, 0xFE, 0xFF):
        yield Case(f"lop3.b32 $0, $1, $2, $3, {table:#x};", ("u32",), three)
    yield Case("prmt.b32 $0, $1, $2, $3;", ("u32",), three)
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        yield Case(f"prmt.b32.{mode} $0, $1, $2, $3;", ("u32",), three)
    for mode in ("wrap", "clamp"):
        yield Case(f"bmsk.{mode}.b32 $0, $1, $2;", ("u32",), ("u32", "u32"))
        for kind in ("u32", "s32"):
            yield Case(f"szext.{mode}.{kind} $0, $1, $2;", ("u32",), ("u32", "u32"))


_ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
_FLOAT_ONLY = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


def _compares(kind: str, names: tuple[str, ...]) -> Case:
    """All comparisons of a type as bits of one word."""
    lines = [f"setp.{name}.{kind} %p, $1, $2; selp.u32 %b, {1 << place}, 0, %p; or.b32 $0, $0, %b;" for place, name in enumerate(names)]
    return Case("{ .reg .pred %p; .reg .u32 %b; mov.u32 $0, 0; " + " ".join(lines) + " }", ("u32",), (kind, kind))


def compare_cases() -> Iterator[Case]:
    """setp, selp, slct, set."""
    for kind in ("u16", "u32", "u64"):
        yield _compares(kind, (*_ORDERED, "lo", "ls", "hi", "hs"))
    for kind in ("s16", "s32", "s64"):
        yield _compares(kind, _ORDERED)
    for kind in ("f16", "bf16", "f32", "f64"):
        yield _compares(kind, (*_ORDERED, *_FLOAT_ONLY))
    for join in ("and", "or", "xor"):
        yield Case(
            f"{{ .reg .pred %p, %q, %r; setp.lt.u32 %p, $2, $3; setp.gt.{join}.s32 %q|%r, $2, $3, !%p; "
            "selp.u32 $0, 1, 0, %q; selp.u32 $1, 1, 0, %r; }",
            ("u32", "u32"), ("u32", "u32"),
        )  # fmt: skip
    for kind in ("u16", "u32", "u64", "f32", "f64"):
        yield Case(f"{{ .reg .pred %p; setp.lt.u32 %p, $3, 0x40000000; selp.{kind} $0, $1, $2, %p; }}", (kind,), (kind, kind, "u32"))
    for kind in ("u32", "u64", "f32"):
        yield Case(f"slct.{kind}.s32 $0, $1, $2, $3;", (kind,), (kind, kind, "s32"))
    for kind in ("u32", "s32", "f32", "f64"):
        yield Case(f"set.lt.u32.{kind} $0, $1, $2;", ("u32",), (kind, kind))
        yield Case(f"set.ge.f32.{kind} $0, $1, $2;", ("f32",), (kind, kind))
    for kind in ("f16x2", "bf16x2"):
        yield Case(
            f"{{ .reg .pred %p, %q; setp.gt.{kind} %p|%q, $2, $3; selp.u32 $0, 1, 0, %p; selp.u32 $1, 1, 0, %q; }}",
            ("u32", "u32"), (kind, kind),
        )  # fmt: skip


def float_cases() -> Iterator[Case]:
    """Arithmetic with each rounding, and of 16 bits."""
    for kind in ("f32", "f64"):
        two, three = (kind, kind), (kind, kind, kind)
        for mode in ("rn", "rz", "rm", "rp"):
            for name in ("add", "sub", "mul", "div"):
                yield Case(f"{name}.{mode}.{kind} $0, $1, $2;", (kind,), two)
            yield Case(f"fma.{mode}.{kind} $0, $1, $2, $3;", (kind,), three)
            for name in ("rcp", "sqrt"):
                yield Case(f"{name}.{mode}.{kind} $0, $1;", (kind,), (kind,))
        for name in ("min", "max"):
            yield Case(f"{name}.{kind} $0, $1, $2;", (kind,), two)
        for name in ("abs", "neg"):
            yield Case(f"{name}.{kind} $0, $1;", (kind,), (kind,))
        yield Case(f"copysign.{kind} $0, $1, $2;", (kind,), two)
        for name in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            yield Case(f"{{ .reg .pred %p; testp.{name}.{kind} %p, $1; selp.u32 $0, 1, 0, %p; }}", ("u32",), (kind,))
    two, three = ("f32", "f32"), ("f32", "f32", "f32")
    for extra in ("ftz", "sat", "ftz.sat"):
        for name in ("add", "sub", "mul"):
            yield Case(f"{name}.rn.{extra}.f32 $0, $1, $2;", ("f32",), two)
        yield Case(f"fma.rn.{extra}.f32 $0, $1, $2, $3;", ("f32",), three)
    for name in ("min", "max"):
        for extra in ("ftz", "NaN", "xorsign.abs"):
            yield Case(f"{name}.{extra}.f32 $0, $1, $2;", ("f32",), two)
    for kind in ("f16", "bf16", "f16x2", "bf16x2"):
        two, three = (kind, kind), (kind, kind, kind)
        for name in ("add", "sub", "mul"):
            yield Case(f"{name}{'.rn' if 'b' in kind else ''}.{kind} $0, $1, $2;", (kind,), two)
        for name in ("min", "max", "min.NaN", "max.NaN"):
            yield Case(f"{name}.{kind} $0, $1, $2;", (kind,), two)
        yield Case(f"fma.rn.{kind} $0, $1, $2, $3;", (kind,), three)
        yield Case(f"fma.rn.relu.{kind} $0, $1, $2, $3;", (kind,), three)
        for name in ("abs", "neg"):
            yield Case(f"{name}.{kind} $0, $1;", (kind,), (kind,))
    for kind in ("f16", "f16x2"):
        yield Case(f"add.sat.{kind} $0, $1, $2;", (kind,), (kind, kind))
        yield Case(f"mul.ftz.{kind} $0, $1, $2;", (kind,), (kind, kind))


def _fits(taken: str, given: str) -> bool:
    """Whether every number of one type is one of the other: then there is nothing to saturate, and ptxas does not take .sat."""
    bits, more = int(taken[1:]), int(given[1:])
    return more > bits if given[0] == "s" and taken[0] == "u" else more >= bits and not (given[0] == "u" and taken[0] == "s")


def convert_cases() -> Iterator[Case]:
    """cvt."""
    for taken in _INTEGERS:
        for given in _INTEGERS:
            if given != taken:
                yield Case(f"cvt.{given}.{taken} $0, $1;", (given,), (taken,))
            if given != taken and not _fits(taken, given):
                yield Case(f"cvt.sat.{given}.{taken} $0, $1;", (given,), (taken,))
    for taken in ("f16", "f32", "f64"):
        for given in ("u16", "s16", "u32", "s32", "u64", "s64"):
            for mode in ("rni", "rzi", "rmi", "rpi"):
                yield Case(f"cvt.{mode}.{given}.{taken} $0, $1;", (given,), (taken,))
    for taken in ("u16", "s16", "u32", "s32", "u64", "s64"):
        for given in ("f16", "f32", "f64"):
            modes = ("rn", "rz", "rm", "rp") if given != "f16" else ("rn", "rz")
            for mode in modes:
                yield Case(f"cvt.{mode}.{given}.{taken} $0, $1;", (given,), (taken,))
    for mode in ("rn", "rz", "rm", "rp"):
        yield Case(f"cvt.{mode}.f32.f64 $0, $1;", ("f32",), ("f64",))
        yield Case(f"cvt.{mode}.f16.f32 $0, $1;", ("f16",), ("f32",))
    for mode in ("rn", "rz"):
        yield Case(f"cvt.{mode}.bf16.f32 $0, $1;", ("bf16",), ("f32",))
        yield Case(f"cvt.{mode}.f16x2.f32 $0, $1, $2;", ("f16x2",), ("f32", "f32"))
        yield Case(f"cvt.{mode}.bf16x2.f32 $0, $1, $2;", ("bf16x2",), ("f32", "f32"))
        yield Case(f"cvt.{mode}.relu.bf16x2.f32 $0, $1, $2;", ("bf16x2",), ("f32", "f32"))
    yield Case("cvt.rn.f16.f64 $0, $1;", ("f16",), ("f64",))
    for taken, given in (("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("f32", "f64")):
        yield Case(f"cvt.{given}.{taken} $0, $1;", (given,), (taken,))
    for mode in ("rni", "rzi", "rmi", "rpi"):
        yield Case(f"cvt.{mode}.f32.f32 $0, $1;", ("f32",), ("f32",))
        yield Case(f"cvt.{mode}.f64.f64 $0, $1;", ("f64",), ("f64",))
        yield Case(f"cvt.{mode}.f16.f16 $0, $1;", ("f16",), ("f16",))
    yield Case("cvt.sat.f32.f32 $0, $1;", ("f32",), ("f32",))
    yield Case("cvt.rna.tf32.f32 $0, $1;", ("f32",), ("f32",))
    for kind in ("e4m3x2", "e5m2x2"):
        yield Case(f"cvt.rn.satfinite.{kind}.f32 $0, $1, $2;", ("u16",), ("f32", "f32"))
        yield Case(f"cvt.rn.satfinite.{kind}.f16x2 $0, $1;", ("u16",), ("f16x2",))
        yield Case(f"cvt.rn.f16x2.{kind} $0, $1;", ("f16x2",), ("u16",))
    for given in ("u8", "s8"):
        yield Case(f"{{ .reg .u16 %h; cvt.{given}.u32 %h, $1; cvt.u32.{given} $0, %h; }}", ("u32",), ("u32",))
        yield Case(f"{{ .reg .u16 %h; cvt.rzi.{given}.f32 %h, $1; cvt.u32.{given} $0, %h; }}", ("u32",), ("f32",))
        yield Case(f"{{ .reg .u16 %h; cvt.sat.{given}.s32 %h, $1; cvt.u32.{given} $0, %h; }}", ("u32",), ("s32",))


def approximate_cases() -> Iterator[Case]:
    """Where a GPU is only close."""
    bounded = "{ .reg .f32 %x; min.f32 %x, $1, 0f42C80000; max.f32 %x, %x, 0fC2C80000; "
    for name in ("rcp", "sqrt", "rsqrt", "lg2", "tanh"):
        yield Case(f"{name}.approx.f32 $0, $1;", ("f32",), ("f32",))
    yield Case(bounded + "ex2.approx.f32 $0, %x; }", ("f32",), ("f32",))
    yield Case("div.full.f32 $0, $1, $2;", ("f32",), ("f32", "f32"))


def move_cases() -> Iterator[Case]:
    """mov in all its forms, registers in scopes, and special registers that are the same everywhere."""
    yield Case("mov.b64 {$0, $1}, $2;", ("u32", "u32"), ("u64",))
    yield Case("mov.b64 $0, {$1, $2};", ("u64",), ("u32", "u32"))
    yield Case("mov.b32 {$0, $1}, $2;", ("u16", "u16"), ("u32",))
    yield Case("{ .reg .b16 %h<4>; mov.b64 {%h0, %h1, %h2, %h3}, $1; mov.b64 $0, {%h3, %h2, %h1, %h0}; }", ("u64",), ("u64",))
    yield Case("{ .reg .b8 %o<4>; mov.b32 {%o0, %o1, %o2, %o3}, $1; mov.b32 $0, {%o2, %o3, %o0, %o1}; }", ("u32",), ("u32",))
    yield Case("{ .reg .b128 %q; mov.b128 %q, {$2, $3}; mov.b128 {$1, $0}, %q; }", ("u64", "u64"), ("u64", "u64"))
    yield Case("{ .reg .u32 %x; mov.u32 %x, $1; { .reg .u32 %x; mov.u32 %x, 7; } mov.u32 $0, %x; }", ("u32",), ("u32",))
    yield Case("mov.f32 $0, 0f40490FDB; add.f32 $0, $0, $1;", ("f32",), ("f32",))
    yield Case("{ .reg .u32 %n; mov.u32 %n, %nctaid.x; mov.u32 $0, %ntid.x; mad.lo.u32 $0, $0, 100, %n; }", ("u32",), ())
    yield Case("{ .reg .u32 %y; mov.u32 %y, %ctaid.y; mov.u32 $0, %ctaid.x; mad.lo.u32 $0, $0, 1000, %y; }", ("u32",), ())
    yield Case("mov.b32 $0, 0b1011; or.b32 $0, $0, 0x100U; sub.s32 $0, $0, -3;", ("u32",), ())


def control_cases() -> Iterator[Case]:
    """Loops and branches that lanes take at different times."""
    yield Case(
        """{ .reg .pred %p; .reg .u32 %n, %x, %y;
           mov.u32 %n, 0; and.b32 %x, $1, 0xfff;
        again: setp.le.u32 %p, %x, 1; @%p bra done;
           and.b32 %y, %x, 1; setp.eq.u32 %p, %y, 0; add.u32 %n, %n, 1;
           @%p bra even; mad.lo.u32 %x, %x, 3, 1; bra again;
        even: shr.u32 %x, %x, 1; bra again;
        done: mov.u32 $0, %n; }""",
        ("u32",), ("u32",),
    )  # fmt: skip
    yield Case(
        """{ .reg .pred %p; .reg .u32 %a, %b, %t; or.b32 %a, $1, 1; mov.u32 %b, $2;
        step: setp.eq.u32 %p, %b, 0; @%p bra end; rem.u32 %t, %a, %b; mov.u32 %a, %b; mov.u32 %b, %t; bra.uni step;
        end: mov.u32 $0, %a; }""",
        ("u32",), ("u32", "u32"),
    )  # fmt: skip
    yield Case(
        """{ .reg .pred %p, %q; .reg .u32 %i; mov.u32 $0, 0; mov.u32 %i, 0;
        outer: add.u32 %i, %i, 1; { .reg .u32 %j; and.b32 %j, $1, 7;
        inner: add.u32 $0, $0, %j; setp.gt.u32 %p, %j, %i; @%p add.u32 %j, %j, -1; @%p bra inner; }
        setp.lt.u32 %q, %i, 5; @%q bra outer; }""",
        ("u32",), ("u32",),
    )  # fmt: skip
    yield Case(
        "{ .reg .pred %p; setp.gt.s32 %p, $1, 0; @%p mov.u32 $0, 5; @!%p mov.u32 $0, 9; @%p bra skip; add.u32 $0, $0, 100; skip: }",
        ("u32",), ("s32",),
    )  # fmt: skip


_RANDOM_32 = ("add.u32", "sub.u32", "mul.lo.u32", "and.b32", "or.b32", "xor.b32", "min.s32", "max.u32", "mul.hi.s32")
_RANDOM_64 = ("add.u64", "sub.u64", "mul.{half}.u64", "and.b64", "or.b64", "xor.b64", "min.s64", "max.u64")


def random_case(seed: int) -> Case:
    """A block of 24 instructions on registers of 32 and 64 bits, some under a predicate, with branches forward.

    No register has a name of the compiler's own (``%r1``), which would hide an operand. Blocks of one kernel have one half of products.
    """
    chance = random.Random(f"ptx {seed}")
    half = ("lo", "hi")[seed // _TOGETHER % 2]
    words, longs = [f"%w{number}" for number in range(5)], [f"%d{number}" for number in range(3)]
    lines = ["mov.u32 %w0, $2;", "mov.u32 %w1, $3;", "mov.b64 %d0, $4;", "xor.b32 %w2, %w0, %w1;", "cvt.u32.u64 %w3, %d0;"]
    lines += ["mov.b64 %d1, {%w0, %w1};", "mul.wide.s32 %d2, %w2, %w3;", "setp.lt.u32 %p0, %w0, %w1;", "popc.b32 %w4, %w2;"]
    lines += ["setp.gt.s64 %p1, %d0, %d1;"]
    label = -1
    for step in range(24):
        guard = chance.choice(["", "", "", "@%p0 ", "@!%p1 ", "@%p1 "])
        w, a, b, c = (chance.choice(words) for _ in range(4))
        x, y, z = (chance.choice(longs) for _ in range(3))
        amount = chance.randrange(32)
        choices = [
            f"{chance.choice(_RANDOM_32)} {w}, {a}, {b};",
            f"{chance.choice(_RANDOM_64).format(half=half)} {x}, {y}, {z};",
            f"mad.lo.u32 {w}, {a}, {b}, {c};",
            f"shf.l.wrap.b32 {w}, {a}, {b}, {amount};",
            f"shl.b64 {x}, {y}, {amount};",
            f"shr.s64 {x}, {y}, {amount};",
            f"bfe.s32 {w}, {a}, {amount}, {chance.randrange(33)};",
            # ptxas takes a constant length of 32 for none, other than it takes one in a register.
            f"bfi.b32 {w}, {a}, {b}, {amount}, {chance.randrange(33) % 32};",
            f"prmt.b32 {w}, {a}, {b}, {chance.randrange(1 << 16):#x};",
            f"lop3.b32 {w}, {a}, {b}, {c}, {chance.randrange(256):#x};",
            f"brev.b32 {w}, {a};",
            f"selp.b32 {w}, {a}, {b}, %p{chance.randrange(2)};",
            f"setp.{chance.choice(_ORDERED)}.s32 %p{chance.randrange(2)}, {a}, {b};",
            f"setp.{chance.choice(('lt', 'ge'))}.xor.u64 %p0, {x}, {y}, %p1;",
            f"cvt.s64.s32 {x}, {a};",
            f"cvt.u32.u64 {w}, {x};",
            f"dp4a.u32.s32 {w}, {a}, {b}, {c};",
        ]
        lines.append(guard + chance.choice(choices))
        if step % 8 == 3:
            label = step
            lines.append(f"@%p{chance.randrange(2)} bra skip{label};")
        if step % 8 == 6:
            lines.append(f"skip{label}:")
    lines += ["xor.b32 $0, %w0, %w1;", "add.u32 $0, $0, %w2;", "xor.b32 $0, $0, %w3;", "add.u32 $0, $0, %w4;"]
    lines += ["xor.b64 $1, %d0, %d1;", "add.u64 $1, $1, %d2;"]
    declared = "{ .reg .b32 %w<5>; .reg .b64 %d<3>; .reg .pred %p<2>; "
    return Case(declared + " ".join(lines) + " }", ("u32", "u64"), ("u32", "u32", "u64"))


FAMILIES = {
    "integers": integer_cases,
    "carry": carry_cases,
    "bits": bit_cases,
    "compare": compare_cases,
    "floats": float_cases,
    "convert": convert_cases,
    "approximate": approximate_cases,
    "moves": move_cases,
    "control": control_cases,
}


def family(name: str, blocks: int = 48) -> Family:
    """The cases of a family. blocks: how many random ones "random" has."""
    from tests.gpu import ptx_memory_cases, ptx_warp_cases

    if name == "random":
        return Family([random_case(seed) for seed in range(blocks)])
    if name in FAMILIES:
        return Family(list(FAMILIES[name]()), close=name == "approximate")
    return Family(programs=list((ptx_memory_cases.FAMILIES | ptx_warp_cases.FAMILIES)[name]()))
