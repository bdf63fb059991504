"""One GPU thread that runs the few PTX instructions of a wait, over memory that a test provides."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_LABEL = re.compile(r"([A-Z]+\d+):$")
_ADDRESS = re.compile(r"\[(%\w+)((?:\+\d+)*)\]")
_MASK = {32: (1 << 32) - 1, 64: (1 << 64) - 1}


@dataclass
class Memory:
    """Ranges of addresses, each over a buffer. on_load: called with the address before each load."""

    ranges: list[tuple[int, Any]]
    on_load: Callable[[int], None] = lambda address: None
    stores: list[int] = field(default_factory=list)

    def _find(self, address: int, size: int) -> tuple[Any, int]:
        for base, buffer in self.ranges:
            if base <= address and address + size <= base + len(buffer):
                assert address % size == 0, f"{address:#x} is not aligned to {size}"
                return buffer, address - base
        raise AssertionError(f"{address:#x} is not mapped")

    def load(self, address: int, size: int) -> int:
        self.on_load(address)
        buffer, offset = self._find(address, size)
        return int.from_bytes(buffer[offset : offset + size], "little")

    def store(self, address: int, size: int, value: int) -> None:
        buffer, offset = self._find(address, size)
        buffer[offset : offset + size] = (value & _MASK[64] & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        self.stores.append(address)


class Clock:
    """%globaltimer: time passes with each instruction."""

    def __init__(self, step: int = 100_000) -> None:
        self.now, self.step = 1_700_000_000_000_000_000, step


def signed(value: int, bits: int) -> int:
    value &= _MASK[bits]
    return value - (1 << bits) if value >> (bits - 1) else value


def run(text: str, registers: dict[str, int], memory: Memory, clock: Clock, most: int) -> dict[str, int]:
    """Run the text until its end; returns the registers. Fails for an instruction it does not know, and after ``most`` of them."""
    program: list[str] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        line = line.split("//")[0].strip().strip("{}") if not re.search(r"\{%", line) else line.split("//")[0].strip()
        if match := _LABEL.match(line):
            labels[match.group(1)] = len(program)
            continue
        program += [part.strip() for part in line.split(";") if part.strip() and not part.strip().startswith(".reg")]
    state = dict(registers)
    at = executed = 0
    while at < len(program):
        executed += 1
        assert executed < most, "the thread waits for ever"
        clock.now += clock.step
        instruction = program[at]
        at += 1
        if guard := re.match(r"@(!?)(%\w+)\s+(.*)", instruction):
            if bool(state[guard.group(2)]) == (guard.group(1) == "!"):
                continue
            instruction = guard.group(3)
        name, _, rest = instruction.partition(" ")
        operands = [part.strip() for part in rest.split(",")]
        if name == "bra":
            at = labels[operands[0]]
        else:
            _execute(name.split("."), operands, state, memory, clock)
    return state


def _execute(name: list[str], operands: list[str], state: dict[str, int], memory: Memory, clock: Clock) -> None:
    def value(operand: str) -> int:
        if operand == "%globaltimer":
            return clock.now
        return state[operand] if operand.startswith("%") else int(operand, 0)

    def address(operand: str) -> int:
        match = _ADDRESS.fullmatch(operand)
        return state[match.group(1)] + sum(int(part) for part in match.group(2).split("+") if part)

    bits = next((int(part[1:]) for part in reversed(name) if re.fullmatch(r"[bsu](32|64)", part)), 32)
    match name[0]:
        case "mov" | "activemask":
            state[operands[0]] = value(operands[1]) if name[0] == "mov" else state["%activemask"]
        case "cvt":
            state[operands[0]] = value(operands[1]) & _MASK[32]
        case "ld":
            state[operands[0]] = memory.load(address(operands[1]), bits // 8)
        case "st":
            memory.store(address(operands[0]), bits // 8, value(operands[1]))
        case "atom":
            state[operands[0]] = memory.load(address(operands[1]), bits // 8)
            memory.store(address(operands[1]), bits // 8, state[operands[0]] + value(operands[2]))
        case "sub":
            state[operands[0]] = (value(operands[1]) - value(operands[2])) & _MASK[bits]
        case "add":
            state[operands[0]] = (value(operands[1]) + value(operands[2])) & _MASK[bits]
        case "and":
            state[operands[0]] = value(operands[1]) & value(operands[2])
        case "or":
            state[operands[0]] = value(operands[1]) | value(operands[2])
        case "shr":
            state[operands[0]] = value(operands[1]) >> value(operands[2])
        case "mad":
            state[operands[0]] = value(operands[1]) * value(operands[2]) + value(operands[3])
        case "setp":
            left, right = value(operands[1]) & _MASK[bits], value(operands[2]) & _MASK[bits]
            if name[-1].startswith("s"):
                left, right = signed(left, bits), signed(right, bits)
            holds = {
                "eq": left == right,
                "ne": left != right,
                "gt": left > right,
                "ge": left >= right,
                "lt": left < right,
                "le": left <= right,
            }
            result = holds[name[1]]
            state[operands[0]] = int(result and bool(state[operands[3]]) if name[2] == "and" else result)
        case "bar" | "fence":
            pass
        case _:
            raise AssertionError(f"this thread does not know {'.'.join(name)}")
