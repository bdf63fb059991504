"""Whatever text a block has, it is translated or refused by name: nothing else comes out of the parser and the translators."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.gpu.ptx_cases import FAMILIES, random_case
from tests.gpu.ptx_warp_cases import MBARRIERS, SHARED, WARPS
from tests.sim.ptx.test_page import REGISTERS, ROWS, spans
from triton_dist.errors import InlineAssemblyError, UnsupportedOperationError
from triton_dist.sim.ptx.block import translate
from triton_dist.sim.ptx.constraints import read_constraints
from triton_dist.sim.ptx.form import MEETINGS, OPCODES
from triton_dist.sim.ptx.mistakes import find_mistakes
from triton_dist.sim.ptx.types import TYPES

EXAMPLES = sorted(
    {f"{{ {REGISTERS} {one} }}" for row in ROWS for one in spans(row[2])}
    | {case.text for family in FAMILIES.values() for case in family()}
    | {f"{{ {REGISTERS} .reg .u64 %a, %b; .reg .u32 %t, %x, %y, %o; {text} }}" for text in (*WARPS, *SHARED, *MBARRIERS)}
    | {random_case(seed).text for seed in range(8)}
)
WORDS = sorted({word for text in EXAMPLES for word in re.findall(r"[.%$]?\w+|[^\w\s]", text)})
MODIFIERS = sorted({one for text in EXAMPLES for one in re.findall(r"\.(\w+(?:::\w+)*)", text)})
MARKS = [
    "{",
    "}",
    "[",
    "]",
    ";",
    ",",
    ":",
    "@",
    "!",
    "|",
    "-",
    "+",
    "<",
    ">",
    ".reg",
    ".shared",
    "_",
    "$0",
    "$1",
    "$9",
    "0f",
    "0x",
    "%p",
    "\n",
]
OPERANDS = [
    "%r0", "%r1", "%d0", "%d1", "%h0", "%p0", "!%p0", "%q0", "%tid.x", "[%d0]", "[%d0+4]", "[%r0]", "[4]", "{%r0,%r1}", "{%p0}",
    "_", "1", "-7", "0f3F800000", "1.5", "1e400", "1e39", "0d3FF0000000000000", "99999999999999999999999", "label", "%r0|%p0",
    "_|%p0", "$0", "$1", "buffer", "[buffer]",
]  # fmt: skip
CONSTRAINTS = "=r,r"


def translated(text, constraints=CONSTRAINTS):
    """Whether the block is taken. Fails for any error but the named ones."""
    try:
        block = translate(text, constraints)
    except UnsupportedOperationError as error:
        assert str(error)
        return False
    for repeated in (False, True):
        assert all(mistake.message for mistake in find_mistakes(block, repeated))
    return True


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("{}[]();,.:@!|+-<>=%$_ \n\tabr013xfFdD/*\"'\\#é\0"), max_size=60))
@example("/* never closed")
@example("$")
@example("${:uid}")
@example("@")
@example("{{{{")
@example(".reg .b32 %r<99999999999>;")
@example(".reg .b32 %r<-1>;")
def test_characters(text):
    translated(text)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([*WORDS, *MARKS]), max_size=25).map(" ".join))
def test_words(text):
    translated(text)
    translated(f"{{ {REGISTERS} {text} }}")


@settings(max_examples=600, deadline=None)
@given(
    opcode=st.sampled_from(sorted({*OPCODES, *MEETINGS, "bra", "ret", "exit", "wgmma"})),
    modifiers=st.lists(st.sampled_from([*TYPES, *MODIFIERS]), max_size=5),
    operands=st.lists(st.sampled_from(OPERANDS), max_size=5), guard=st.sampled_from(["", "@%p0 ", "@!%p1 ", "@%r0 "]),
)  # fmt: skip
def test_instructions(opcode, modifiers, operands, guard):
    text = f"{guard}{'.'.join([opcode, *modifiers])} {', '.join(operands)};"
    translated(f"{{ {REGISTERS} .shared .align 16 .b8 buffer[64]; {text} }}")


HEADS = sorted({one.split()[0].rstrip(";") for row in ROWS for text in spans(row[2]) for one in text.split("; ") if one.strip()})


@settings(max_examples=600, deadline=None)
@given(head=st.sampled_from(HEADS), operands=st.lists(st.sampled_from(OPERANDS), max_size=5))
def test_operands(head, operands):
    translated(f"{{ {REGISTERS} .shared .align 16 .b8 buffer[64]; {head} {', '.join(operands)}; }}")


INSTRUCTION = re.compile(r"[;{}]\s*(?:@!?[%$]\w+ )?(\w[\w.:]*)(?= )[^;{}]*(?:\{[^{}]*\}[^;{}]*)*;")
OPERAND = re.compile(r"(?<=[\s,])(?:\{[^{}]*\}|\[[^\[\]]*\]|[%$!]?[\w.|%]+)(?=\s*[,;])")


def one_of_each_head():
    """(text of a block, where an instruction's operands begin and end in it), one for each opcode with its modifiers."""
    found = {}
    for text in EXAMPLES:
        for match in INSTRUCTION.finditer(text):
            if not match[1].startswith("."):
                found.setdefault(match[1], (text, match.end(1), match.end()))
    return found


def test_every_operand_of_every_instruction_as_another():
    heads = one_of_each_head()
    assert len(heads) > 200
    for text, begin, end in heads.values():
        for match in OPERAND.finditer(text, begin, end):
            for operand in ("%r0", "%h0", "!%p0", "%q0", "%tid.x", "[%d0]", "{%r0,%r1}", "_", "-7", "1.5", "1e400", "label", "buffer"):
                translated(text[: match.start()] + operand + text[match.end() :], "=&r,=&r,l,r")


@settings(max_examples=400, deadline=None)
@given(text=st.sampled_from(EXAMPLES), data=st.data())
def test_examples_with_a_mistake(text, data):
    """A piece of a block is lost, doubled, or replaced by another word."""
    pieces = re.findall(r"[.%$]?\w+|\s+|[^\w\s]", text)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(pieces) - 1))
        pieces[place] = data.draw(st.sampled_from(["", pieces[place] * 2, *MARKS, *OPERANDS]))
    translated("".join(pieces), "=&r,=&r,l,r")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(["=r", "=&r", "+r", "r", "l", "=l", "0", "1", "7", "~{memory}", "=x", "x", "", "=", "=&", "=0", "R", "rr", " r "]),
        max_size=6,
    )
)
def test_constraints(parts):
    text = ",".join(parts)
    try:
        read_constraints(text)
    except InlineAssemblyError as error:
        assert str(error)
    translated("mov.u32 $0, $1;", text)


def test_the_examples_are_taken():
    assert sum(translated(text) for text in EXAMPLES if "$2" not in text) > 100
