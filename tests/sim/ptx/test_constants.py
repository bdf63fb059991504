"""Constants: their bits are the assembler's, and where it refuses one, so does the simulator."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from tests.sim.ptx.assembler import assemble, refusals
from tests.sim.ptx.test_page import REGISTERS, ROWS, spans
from triton_dist.errors import InlineAssemblyError, UnsupportedInstructionError, UnsupportedOperationError
from triton_dist.sim.ptx.block import translate

INTEGERS = [
    "5", "-1", "017", "0x1F", "0XfU", "0b101", "0B11U", "4294967296", "-4294967297", "18446744073709551615", "0xFFFFFFFFFFFFFFFF",
    "WARP_SZ", "(1<<4)|3", "3+4*2", "~0", "!0", "!5", "5>3?1:0", "(.s64)5", "(.u64)-1>>63", "(.s64)0xffffffffffffffff>>63", "- -3", "-+5",
    "((5))", "7/2", "-7/2", "-7/2U", "7 % 3", "-7 % 3", "(7 % 4)-4>>1", "-7>>1", "-7>>1U", "5U-6>>1", "7&&0", "7||0", "1||0&&0", "5==5",
    "5!=5", "-1<0", "-1<0U", "5>3>2", "1?2:0?3:4", "0?2:0?3:4", "(0?-1:2U)-3>>1", "(1?2:2U)-3>>1", "(~5)>>1", "(1&1)-2>>1", "(7U&1)-2>>1",
    "(1^0)-2>>1", "1<<65", "1<<-1", "0xffffffffffffffff+1", "9223372036854775808/2", "-9223372036854775808/2", "WARP_SZ-33>>1", "8/2*3",
    "7-3-2", "1<<2<<3", "5^3|1", "5&3==1", "2+3<<1", "-!0", "!~0", "-(5U)>>1", "1.5>1.0",
]  # fmt: skip
DOUBLES = [
    "1.5", ".5", "1.", "1e3", "1.E+2", "-1.5", "- -1.5", "0d7FF0000000000001", "-0d7FF0000000000001", "1.5+2.0", "1.0/3.0", "-(1.5)*2.0",
]  # fmt: skip
FLOATS = [
    *DOUBLES, "0f7F800001", "0fFFA00001", "0F3f800000", "0d7FF0000020000000", "0dFFF8000000000001", "0d3FF0000000000001", "1e39", "-1e39",
    "1e-50", "1e-40", "0.1", "1.00000005960464480", "-0.0",
]  # fmt: skip
WRONG = [
    "08", "09", "0xg", "0b2", "5u", "99999999999999999999", "1e400", "1e-400", "1.5f", "5/0", "5 % (1-1)", "1.0+2", "!1.0", "~1.5",
    "-0f3F800000", "1.0?2:3", "(.u32)5", "(.s64)1.5", "1.5&1.5", "1<<1.0", "0f3F800000+0f3F800000", "1?2.0:3.0", "(5", "5+", "5?1",
    "\u0665",
]  # fmt: skip


def stored(kind: str, constants: list[str], folder) -> bytes:
    """The machine code of a kernel that stores constants."""
    bits = 64 if kind.endswith("64") else 32
    lines = [f".reg .b64 %a; ld.param.u64 %a, [parameter]; .reg .b{bits} %x;"]
    lines += [f"mov.{kind} %x, {one}; st.global.b{bits} [%a+{8 * place}], %x;" for place, one in enumerate(constants)]
    code, errors = assemble(lines, folder)
    assert code, errors
    return code


def computed(kind: str, constants: list[str], evaluate) -> list[int]:
    bits = 64 if kind.endswith("64") else 32
    return [int(evaluate(f"mov.{kind} $0, {one};", [bits])[0][0]) for one in constants]


def random_expression(chance: random.Random, depth: int = 4) -> str:
    if not depth or chance.random() < 0.1:
        return chance.choice(["0", "1", "3", "7U", "31", "0x80000000", "9223372036854775807", "0xFFFFFFFFFFFFFFFF", "WARP_SZ"])
    one, two = (random_expression(chance, depth - 1) for _ in range(2))
    mark = chance.choice(["+", "-", "*", "<<", ">>", "&", "|", "^", "<", "<=", ">", ">=", "==", "!=", "&&", "||"])
    shapes = [f"({one} % 7)", f"-{one}", f"~{one}", f"!{one}", f"({one} ? {two} : {one})", f"({one}) / 3", f"(.s64){one}", f"(.u64)({one})"]
    return chance.choice([f"{one} {mark} {two}"] * 6 + shapes)


@pytest.mark.parametrize("kind", ["b64", "u64", "s64", "b32", "u32", "s32"])
def test_integers(kind, evaluate, tmp_path):
    found = computed(kind, INTEGERS, evaluate)
    assert stored(kind, INTEGERS, tmp_path) == stored(kind, list(map(hex, found)), tmp_path)


def test_random_expressions(evaluate, tmp_path):
    chance = random.Random(0)
    expressions = [random_expression(chance) for _ in range(300)]
    found = computed("b64", expressions, evaluate)
    assert len(set(found)) > 30
    assert stored("b64", expressions, tmp_path) == stored("b64", list(map(hex, found)), tmp_path)


@pytest.mark.parametrize("kind, constants", [("f32", FLOATS), ("f64", DOUBLES), ("b64", DOUBLES), ("b32", ["0f7F800001", "0fFFA00001"])])
def test_floats(kind, constants, evaluate, tmp_path):
    found = computed(kind, constants, evaluate)
    assert stored(kind, constants, tmp_path) == stored(f"b{kind[1:]}", list(map(hex, found)), tmp_path)


@pytest.mark.parametrize("pattern", ["7F800001", "FF800001", "7FBFFFFF", "FFA00000"])
def test_a_signalling_nan_stays_one(pattern, evaluate):
    for kind in ("b32", "f32"):
        assert evaluate(f"mov.{kind} $0, 0f{pattern};", [32])[0][0] == int(pattern, 16)
    assert evaluate(f"selp.f32 $0, 0f{pattern}, $1, 1;", [32], np.zeros(1, np.uint32))[0][0] == int(pattern, 16)
    wide = f"{pattern}00000001"
    for kind in ("b64", "f64"):
        assert evaluate(f"mov.{kind} $0, 0d7FF{wide[3:]};", [64])[0][0] == int(f"7FF{wide[3:]}", 16)


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize("kind", ["u32", "f32"])
def test_what_is_no_constant(kind, text, tmp_path):
    block = f"mov.{kind} %r0, {text};"
    assert not assemble([REGISTERS, block], tmp_path)[0]
    with pytest.raises(InlineAssemblyError, match="line 1 of the assembly"):
        translate(f"{{ {REGISTERS} {block} }}", "=r")


def test_a_float_of_32_bits_is_none_of_64():
    with pytest.raises(InlineAssemblyError, match="0d and 16 digits"):
        translate("mov.f64 $0, 0f3F800000;", "=d")


TAKEN_ALL_THE_SAME = {"mbarrier.try_wait.parity", "cp.async.bulk"}
"""Where the assembler looks at the value of a number."""


def test_every_operand_as_a_constant(tmp_path):
    """Where the assembler refuses one, so does the simulator; where it takes one, that is not called wrong (but in braces it takes all)."""
    blocks = []
    for example in (one for row in ROWS for one in spans(row[2]) if one.count(";") == 1):
        head = example.split()[0]
        first = 0 if head.startswith(("st", "red", "bar", "nanosleep", "membar", "fence")) else len(head) + 2
        for match in re.finditer(r"(?<=[\s,{])!?%[rdhpq]\d(?=\s*[,;}])", example):
            if match.start() >= first:
                blocks += [
                    f"{{ {REGISTERS} {example[: match.start()]}{one}{example[match.end() :]} }}"
                    for one in ("5", "1.5", "0f3F800000", "0d3FF0000000000000")
                ]
    assert len(blocks) > 400
    refused = refusals(blocks, tmp_path)
    assert len(refused) > 200
    for number, block in enumerate(blocks):
        text = block.removeprefix(f"{{ {REGISTERS}")
        try:
            translate(block, "=r")
        except UnsupportedOperationError as error:
            in_braces = re.search(r"\{[^}]*(?<=[\s{])[\d.][^}]*\}", text)
            assert number in refused or in_braces or "0d and 16" in str(error) or not isinstance(error, InlineAssemblyError), (text, error)
        else:
            assert number not in refused or any(name in text for name in TAKEN_ALL_THE_SAME), (text, refused[number])


DEEP = {
    "brackets": "(" * 5000 + "1" + ")" * 5000,
    "minus": "-" * 5000 + "1",
    "complements": "~" * 5000 + "1",
    "nots": "!" * 5000 + "1",
    "choices": "1 ? " * 5000 + "1",
}


@pytest.mark.parametrize("what", DEEP)
def test_constants_inside_of_too_many_others(what):
    with pytest.raises(UnsupportedInstructionError, match="so many brackets and signs"):
        translate(f"mov.u32 $0, {DEEP[what]};", "=r")
