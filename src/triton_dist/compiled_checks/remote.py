"""TD206: tiles of another rank's memory that are read or written by less than 16 bytes a thread.

A remote access costs the link the same whether it carries 4 bytes or 16. Only tiles with 16 bytes and more for each thread are looked at:
words and small tiles can't do better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..lints import Finding
from ..runtime.address_map import STRIDE_BITS
from ..sim.ir import Operation, split_top_level
from ..sim.types import Type
from .guarded import Source
from .operations import chain_of, key_of_op, operations, shown
from .places import PTX_FRAMES
from .ptx import Ptx

WIDE = 16
"""Bytes of the widest access of one thread."""


def check_remote(source: Source, ptx: Ptx, num_warps: int, arch: int) -> Iterator[Finding]:
    """Loads and stores of tiles through pointers that ``symm_at`` gave."""
    addresses = Addresses(source.tree)
    for op in operations(source.tree):
        if op.name not in ("tt.load", "tt.store") or op.operands[0] not in addresses.remote:
            continue
        kind = op.operand_types[0]
        size = 1 if kind.pointee == "i1" else kind.pointee_size
        share = math.prod(kind.dims) * size // (32 * num_warps)
        if not kind.dims or share < WIDE:
            continue
        key = key_of_op(op)[:PTX_FRAMES]
        mnemonic = "ld." if op.name == "tt.load" else "st."
        widths = [one.bytes_a_thread for one in ptx.instructions() if one.key == key and (mnemonic in one.text or "cp.async.c" in one.text)]
        if not any(widths) or max(widths) >= WIDE:
            continue
        place = shown(chain_of(op))
        yield Finding(
            "TD206",
            f"for sm_{arch} this {'reads' if mnemonic == 'ld.' else 'writes'} another rank's memory by {max(widths)} bytes a thread, where "
            f"{WIDE} are possible ({share} bytes of the tile are each thread's): {addresses.reason(op, WIDE // size)}",
            place.file or None,
            place.line or None,
        )


class Addresses:
    """Where pointers come from. remote: the values that are pointers, or descriptors, computed from what ``symm_at`` gave.

    loaded: those that are computed from a pointer or an address that was read from memory, such as a table of peers.
    """

    def __init__(self, tree: Operation) -> None:
        self._makers = {result: op for op in operations(tree) for result in op.results}
        self._function = next((op for op in operations(tree) if op.name == "tt.func"), None)
        uses: dict[str, list[str]] = {}
        for op in operations(tree):
            pointers = [name for name, kind in zip(op.results, op.result_types, strict=True) if _leads(kind)]
            for operand in () if op.name in ("tt.load", "tt.descriptor_load") else op.operands:
                uses.setdefault(operand, []).extend(pointers)
            if op.name in ("scf.for", "scf.while") and op.regions:
                names = [name for name, kind in op.regions[0][0].arguments if _leads(kind)]
                inits = [name for name, kind in zip(op.operands, op.operand_types, strict=True) if _leads(kind)]
                for init, name in zip(inits, names, strict=False):
                    uses.setdefault(init, []).append(name)
        self.remote = _reached(uses, [op.results[0] for op in operations(tree) if op.name == "tt.addptr" and self._is_distance(op)])
        self.loaded = _reached(uses, [op.results[0] for op in operations(tree) if self._is_read_address(op)])

    def _is_read_address(self, op: Operation) -> bool:
        """Whether it gives a pointer that was read, or makes one of an integer that was read."""
        if op.name == "tt.load":
            return op.result_types[0].is_pointer
        maker = self._through(op.operands[0]) if op.name == "tt.int_to_ptr" else None
        return maker is not None and maker.name == "tt.load"

    def _is_distance(self, op: Operation) -> bool:
        """Whether it adds a number of slots of the address map: a value shifted by the stride's bits, counted in elements."""
        maker = self._through(op.operands[1])
        if maker is None or maker.name != "arith.shli":
            return False
        amount = self._through(maker.operands[1])
        size = op.operand_types[0].pointee_size if op.operand_types[0].pointee != "i1" else 1
        return amount is not None and self._constant(amount) == STRIDE_BITS - (size.bit_length() - 1)

    def _through(self, name: str) -> Operation | None:
        maker = self._makers.get(name)
        while maker is not None and maker.name in ("tt.splat", "tt.broadcast", "tt.expand_dims", "arith.extsi"):
            maker = self._makers.get(maker.operands[0])
        return maker

    @staticmethod
    def _constant(op: Operation) -> int | None:
        value = op.attributes.get("value")
        if isinstance(value, str) and value.startswith("dense<"):
            value = value[6:].partition(">")[0]
            return int(value) if value.lstrip("-").isdigit() else None
        return value if op.name == "arith.constant" and isinstance(value, int) else None

    def reason(self, op: Operation, elements: int) -> str:
        """Why it is not wider, as far as it can be told: arguments in the address that are not known to be multiples of 16."""
        unknown = sorted(self._unaligned_arguments(op.operands[0]))
        if unknown:
            return (
                f"{', '.join(unknown)} {'is' if len(unknown) == 1 else 'are'} not known to be a multiple of 16; pass such values and leave "
                "them specialised, or say so by tl.multiple_of"
            )
        if len(op.operands) > 1 and op.name == "tt.load" or len(op.operands) > 2:
            return f"its mask may differ among {elements} neighbouring elements, or they do not lie side by side"
        return f"Triton does not know that {elements} neighbouring elements lie side by side and begin at a multiple of 16 bytes"

    def _unaligned_arguments(self, name: str) -> set[str]:
        if self._function is None:
            return set()
        arguments = [argument for argument, _ in self._function.regions[0][0].arguments]
        attributes = split_top_level(str(self._function.attributes.get("arg_attrs", "[]"))[1:-1])
        aligned = {argument for argument, text in zip(arguments, attributes, strict=False) if "tt.divisibility = 16" in text}
        found: set[str] = set()
        todo, seen = [name], {name}
        while todo:
            value = todo.pop()
            if value in arguments and value not in aligned:
                found.add(value.removeprefix("%"))
            maker = self._makers.get(value)
            # The distance to another rank is a multiple of everything, whatever it is computed from.
            stop = maker is None or maker.name == "arith.shli" and self._constant(self._through(maker.operands[1]) or maker) is not None
            for operand in () if stop or maker is None else maker.operands:
                if operand not in seen:
                    seen.add(operand)
                    todo.append(operand)
        return found


def _leads(kind: Type) -> bool:
    """Whether memory is reached through a value of this type."""
    return kind.is_pointer or kind.element == "desc"


def _reached(uses: dict[str, list[str]], begin: list[str]) -> set[str]:
    """``begin`` and all pointers that are computed from them."""
    found: set[str] = set()
    todo = list(begin)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += uses.get(name, [])
    return found
