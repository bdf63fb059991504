"""Which thread has which element of a tile that inline assembly works on: as the CUDA back end's passes lay it out.

The layout of a block follows from the loads and stores around it, so the back end is asked: its passes run on a copy of the kernel, up to
the IR with layouts. That is done only for a kernel with blocks that are not pure or that ask for their thread. Where the passes fail, or
give the tile a layout that is none of the plain ones, or two (Triton 3.6 and 3.7 may run a block twice), the layout is not known.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np

ATTRIBUTE = "td.asm_layouts"
"""Of a module: what ``find_layouts`` has found, as the hexadecimal digits of JSON."""

_ALIAS = re.compile(r"^(#\w+) = #ttg\.blocked<\{(.*)\}>", re.MULTILINE)
_LIST = re.compile(r"(\w+) = \[([\d, ]*)\]")
_BLOCK = re.compile(
    r'tt\.elementwise_inline_asm "((?:[^"\\]|\\.)*)" \{.*?packed_element = (\d+).*?\} '
    r".*?-> \(?tensor<((?:\d+x)+)[^,>]+(?:<[^>]*>)?, (#\w+)>"
)
_THREADED = re.compile(r'tt\.elementwise_inline_asm (?:.*pure = false|".*%(?:tid|laneid|warpid|lanemask)).*tensor<')


class Layout(NamedTuple):
    """Triton's blocked layout, one number an axis: elements side by side in a thread, threads of a warp, warps. order: fastest first."""

    size: tuple[int, ...]
    threads: tuple[int, ...]
    warps: tuple[int, ...]
    order: tuple[int, ...]


def needs_layouts(text: str) -> bool:
    """Whether a kernel, in Triton's syntax, has a block for which threads matter."""
    return _THREADED.search(text) is not None


def find_layouts(text: str) -> str:
    """What the IR with layouts, in Triton's syntax, says of blocks: see ``ATTRIBUTE``."""
    aliases = {name: _layout(body) for name, body in _ALIAS.findall(text)}
    found: dict[str, list[Layout | None]] = {}
    for asm, _, shape, alias in _BLOCK.findall(text):
        layouts = found.setdefault(_key(_unescaped(asm), tuple(int(size) for size in shape.split("x")[:-1])), [])
        layout = aliases.get(alias)
        if layout not in layouts:
            layouts.append(layout)
    return json.dumps(found).encode().hex()


def layout_of(attribute: object, asm: str, shape: tuple[int, ...]) -> Layout | None:
    """The layout of a block by its text and its tile's shape; None if it is not known, or there are several."""
    if not isinstance(attribute, str) or not attribute:
        return None
    layouts = json.loads(bytes.fromhex(attribute)).get(_key(asm, shape), [])
    if len(layouts) != 1 or layouts[0] is None:
        return None
    return Layout(*(tuple(one) for one in layouts[0]))


def times_laid_out(attribute: object, asm: str, shape: tuple[int, ...]) -> int:
    """In how many layouts a block runs; 0 if that is not known."""
    if not isinstance(attribute, str) or not attribute:
        return 0
    return len(json.loads(bytes.fromhex(attribute)).get(_key(asm, shape), []))


def _key(asm: str, shape: tuple[int, ...]) -> str:
    return f"{hashlib.sha256(asm.encode()).hexdigest()[:16]} {shape}"


def _unescaped(text: str) -> str:
    return re.sub(rb"\\([0-9A-F]{2}|.)", _one, text.encode()).decode()


def _one(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return bytes([int(code, 16)]) if len(code) == 2 else {b"n": b"\n", b"t": b"\t"}.get(code, code)


def _layout(body: str) -> Layout | None:
    lists = {name: tuple(int(one) for one in numbers.split(",") if one.strip()) for name, numbers in _LIST.findall(body)}
    try:
        return Layout(lists["sizePerThread"], lists["threadsPerWarp"], lists["warpsPerCTA"], lists["order"])
    except KeyError:
        return None


@lru_cache(maxsize=256)
def elements_by_layout(layout: Layout, shape: tuple[int, ...], threads: int, pack: int) -> np.ndarray | None:
    """As ``binding.elements_of_threads``; None where a thread would have an element twice. Not to be written to."""
    size, lanes, warps, order = layout
    whole = [a * b * c for a, b, c in zip(size, lanes, warps, strict=True)]
    if any(one > extent for one, extent in zip(size, shape, strict=True)) or int(np.prod(lanes)) * int(np.prod(warps)) != threads:
        return None
    repeats = [max(extent // one, 1) for extent, one in zip(shape, whole, strict=True)]
    lane, warp = (_digits(np.arange(int(np.prod(sizes))), sizes, order) for sizes in (lanes, warps))
    inner, outer = (_digits(np.arange(int(np.prod(sizes))), sizes, order) for sizes in (size, repeats))
    thread = np.arange(threads)
    flat = np.zeros((len(outer[0]) * len(inner[0]), threads), np.int64)
    for axis, extent in enumerate(shape):
        base = (warp[axis][thread // len(lane[0])] * lanes[axis] + lane[axis][thread % len(lane[0])]) * size[axis]
        register = (outer[axis][:, None] * whole[axis] + inner[axis][None, :]).reshape(-1, 1)
        flat = flat * extent + (register + base) % extent
    groups = -(-len(flat) // pack)
    padded = np.concatenate([flat, np.full((groups * pack - len(flat), threads), -1)])
    return padded.reshape(groups, pack, threads).transpose(0, 2, 1)


def _digits(numbers: np.ndarray, sizes, order: tuple[int, ...]) -> list[np.ndarray]:
    """A number as one digit an axis, the first axis of the order being the lowest."""
    result = [numbers] * len(order)
    for axis in order:
        result[axis] = numbers % sizes[axis]
        numbers = numbers // sizes[axis]
    return result
