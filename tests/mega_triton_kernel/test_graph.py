"""Who waits for whom, against every pair of tiles looked at by its bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triton_dist.errors import InvalidArgumentError
from triton_dist.mega_triton_kernel import graph
from triton_dist.mega_triton_kernel.graph import Access, Operation, check_tiles, dependencies, meeting_tiles, overlaps
from triton_dist.mega_triton_kernel.machine import Machine
from triton_dist.mega_triton_kernel.tasks import activation, elementwise, linear, normalization

MEMORY = 64


@dataclass(frozen=True)
class Place:
    """Where an access of an operation lies in the memory of these tests, and its boxes."""

    origin: int
    pitch: int
    boxes: tuple[tuple[int, int, int, int], ...]

    def access(self) -> Access:
        return Access(self.origin, self.pitch, np.array(self.boxes, dtype=np.int64).reshape(-1, 4))

    def touched(self, tile: int) -> set[int]:
        first, end, left, right = self.boxes[tile]
        return {self.origin + row * self.pitch + column for row in range(first, end) for column in range(left, right)}


@st.composite
def places(draw, tiles: int) -> Place:
    pitch, rows = draw(st.sampled_from([4, 6, 8, 12])), 3
    boxes = []
    for _ in range(tiles):
        first, left = draw(st.integers(0, rows)), draw(st.integers(0, pitch))
        boxes.append((first, draw(st.integers(first, rows)), left, draw(st.integers(left, pitch))))
    return Place(draw(st.integers(0, MEMORY - rows * pitch)), pitch, tuple(boxes))


@given(places(3), places(2))
def test_overlaps_are_never_missed(left, right):
    found = overlaps(left.access(), right.access())
    real = np.array([[bool(left.touched(i) & right.touched(j)) for j in range(2)] for i in range(3)])
    assert not (real & ~found).any()
    if left.pitch == right.pitch and (right.origin - left.origin) % left.pitch == 0:
        assert (found == real).all()


def test_overlaps_by_blocks_are_the_same(monkeypatch):
    boxes = [(row, row + 2, column, column + 9) for row in range(0, 40, 3) for column in range(0, 30, 4)]
    left, right = Access(0, 50, np.array(boxes)), Access(70, 50, np.array(boxes[::-1][:50]))
    at_once = overlaps(left, right)
    assert at_once.any() and not at_once.all()
    for cells in (1, 60, 250):
        monkeypatch.setattr(graph, "_CELLS", cells)
        assert (overlaps(left, right) == at_once).all()


@st.composite
def programs(draw) -> list[tuple[Operation, list[Place], list[Place]]]:
    made = []
    for index in range(draw(st.integers(2, 6))):
        tiles = draw(st.integers(1, 3))
        reads, writes = (draw(st.lists(places(tiles), max_size=2)) for _ in range(2))
        operation = Operation(
            f"op{index}", None, None, (), tiles, tuple(place.access() for place in reads), tuple(place.access() for place in writes)
        )
        made.append((operation, reads, writes))
    return made


@given(programs())
def test_every_conflict_is_ordered(program):
    """A later tile that touches what an earlier one writes, or writes what it reads, comes after it, if need be through others."""
    operations = [operation for operation, _, _ in program]
    before: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for index, of_tiles in enumerate(dependencies(operations)):
        for tile, waits in enumerate(of_tiles):
            mine = before[index, tile] = set()
            for earlier, ranges in waits:
                assert earlier < index
                for first, end in ranges:
                    for other in range(first, end):
                        mine |= {(earlier, other)} | before[earlier, other]
    for later, (operation, reads, writes) in enumerate(program):
        for earlier in range(later):
            theirs, their_reads, their_writes = program[earlier]
            for tile in range(operation.tiles):
                for other in range(theirs.tiles):
                    read, written = (set().union(*(place.touched(tile) for place in given)) for given in (reads, writes))
                    was_read, was_written = (
                        set().union(*(place.touched(other) for place in given)) for given in (their_reads, their_writes)
                    )
                    if written & (was_read | was_written) or read & was_written:
                        assert (earlier, other) in before[later, tile]


def operation(reads: torch.Tensor, writes: torch.Tensor, boxes: list[tuple[int, int, int, int]]) -> Operation:
    tiles = len(boxes)
    return Operation("linear", None, None, (), tiles, (Access.of_all(reads, tiles),), (Access.of_boxes(writes, writes.shape[1], boxes),))


def test_tiles_are_waited_for_one_by_one_where_that_is_enough():
    memory = [torch.zeros(8, 6) for _ in range(3)]
    rows = [(row, row + 2, 0, 6) for row in range(0, 8, 2)]
    first = operation(memory[0], memory[1], rows)
    by_rows = Operation("add", None, None, (), 4, (Access.of_boxes(memory[1], 6, rows),), (Access.of_boxes(memory[2], 6, rows),))
    # Seen as twice as many rows, half as long: the same bytes.
    halves = [(2 * first, 2 * end, 0, 3) for first, end, _, _ in rows]
    reshaped = Operation("add", None, None, (), 4, (Access.of_boxes(memory[2].view(16, 3), 3, halves),), ())
    waits = dependencies([first, by_rows, reshaped])
    assert waits[1] == [[(0, [(tile, tile + 1)])] for tile in range(4)]
    assert waits[2] == [[(1, [(tile, tile + 1)])] for tile in range(4)]


def test_what_follows_from_other_waits_is_left_out():
    a, b, c = (torch.zeros(4, 8) for _ in range(3))
    rows = [(row, row + 1, 0, 8) for row in range(4)]
    chain = [operation(a, b, rows), operation(b, c, rows), operation(c, a, rows), operation(b, c, rows)]
    waits = dependencies(chain)
    # The third one writes what the first read, and the fourth what the second did: both follow.
    assert waits[2] == [[(1, [(0, 4)])]] * 4
    assert waits[3] == [[(2, [(0, 4)])]] * 4
    assert dependencies(chain, in_order=True) == [[[]] * 4] + [[[(index, [(0, 4)])]] * 4 for index in range(3)]


def test_layers_in_the_same_buffers_wait_for_what_is_near():
    """Tiles of the second operation wait for some of the first; the third waits for all of the second, and so for all of the first."""
    x, wide, back = torch.zeros(1, 8), torch.zeros(1, 32), torch.zeros(1, 32)
    columns = [(0, 1, first, first + 8) for first in range(0, 32, 8)]
    layer = [
        operation(x, wide, columns),
        Operation("add", None, None, (), 4, (Access.of_boxes(wide, 32, columns),), (Access.of_boxes(back, 32, columns),)),
        operation(back, x, [(0, 1, 0, 8)]),
    ]
    waits = dependencies(layer * 5)
    for number in range(1, 5):
        first, second, third = waits[3 * number : 3 * number + 3]
        assert first == [[(3 * number - 1, [(0, 1)])]] * 4
        assert second == [[(3 * number, [(tile, tile + 1)])] for tile in range(4)]
        assert third == [[(3 * number + 1, [(0, 4)])]]


def test_tiles_that_disturb_each_other_are_refused():
    a = torch.zeros(4, 8)
    with pytest.raises(InvalidArgumentError, match="tile 0 would write"):
        check_tiles(operation(torch.zeros(4, 8), a, [(0, 2, 0, 8), (1, 3, 0, 8)]))
    with pytest.raises(InvalidArgumentError, match="shares no memory"):
        check_tiles(operation(a, a, [(0, 1, 0, 8), (1, 2, 0, 8)]))
    check_tiles(operation(torch.zeros(4, 8), a, [(0, 1, 0, 8), (1, 2, 0, 8), (2, 2, 0, 8)]))


def at(memory: torch.Tensor, first: int, *shape: int) -> torch.Tensor:
    """A contiguous tensor from an element of ``memory`` on."""
    return memory[first : first + torch.Size(shape).numel()].view(shape)


def added(memory: torch.Tensor, first: int, programs: int) -> Operation:
    return elementwise.add(at(memory, 600, 5, 120), torch.zeros(5, 120), at(memory, first, 5, 120), programs)


def one_row_added(memory: torch.Tensor, first: int, programs: int) -> Operation:
    return elementwise.add(torch.zeros(600), at(memory, 600, 600), at(memory, first, 600), programs)


def normalized(memory: torch.Tensor, first: int, programs: int) -> Operation:
    return normalization.rms_norm(at(memory, 600, 3, 200), torch.ones(200), at(memory, first, 3, 200), 1e-6)


def activated(memory: torch.Tensor, first: int, programs: int) -> Operation:
    return activation.silu_mul_up(at(memory, 600, 2, 300), at(memory, first, 2, 150), programs)


def product(memory: torch.Tensor, first: int, programs: int) -> Operation:
    return linear.linear("linear", at(memory, 600, 4, 150), torch.zeros(150, 150), at(memory, first, 4, 150), Machine(programs, 100_000))


def heads(memory: torch.Tensor, first: int, programs: int, *, value: int = 2000) -> Operation:
    """qkv of 600 elements: 3 tokens, 10 heads; q of 6, k and v of 2."""
    norms = normalization.Norms(torch.ones(20), torch.ones(20))
    lens, angles = torch.zeros(1, dtype=torch.int32), torch.zeros(9, 20)
    return normalization.qkv_pack_qk_norm_rope_split_v(
        at(memory, 600, 1, 3, 10, 20), lens, norms, angles, angles, torch.zeros(1, 3, 6, 20), at(memory, first, 1, 3, 2, 20),
        at(memory, value, 1, 3, 2, 20), programs,
    )  # fmt: skip


def paged(memory: torch.Tensor, first: int, programs: int) -> Operation:
    """Caches of 5 pages of 3 keys of 2 heads: 600 elements."""
    norms = normalization.Norms(torch.ones(20), torch.ones(20))
    lens, angles, tables = torch.ones(1, dtype=torch.int32), torch.zeros(9, 20), torch.zeros(1, 5, dtype=torch.int32)
    return normalization.qk_norm_rope_update_kvcache(
        torch.zeros(1, 3, 10, 20), at(memory, 600, 5, 3, 2, 20), at(memory, first, 5, 3, 2, 20), tables, lens, norms, angles, angles,
        torch.zeros(1, 3, 6, 20), programs,
    )  # fmt: skip


SHARING = {
    # What is made, elements of what begins at 600 and of what is moved beside it, and whether both may be exactly the same.
    added: (600, 600, True),
    one_row_added: (600, 600, True),
    normalized: (600, 600, True),
    activated: (600, 300, False),
    product: (600, 600, False),
    heads: (600, 120, False),
    paged: (600, 600, False),
}


@pytest.mark.parametrize("programs", [1, 2, 7, 132])
@pytest.mark.parametrize("make", SHARING, ids=lambda make: make.__name__)
def test_tensors_that_overlap_are_refused_for_any_number_of_programs(make, programs):
    """Whatever the tiles are: also where one tile is all of the operation, or an input and an output are one tile apart."""
    there, moved, same = SHARING[make]
    for first in range(0, 1300, 4):
        apart = first + moved <= 600 or first >= 600 + there or (same and first == 600)
        try:
            accepted = meeting_tiles(make(torch.zeros(2500), first, programs)) is None
        except InvalidArgumentError:
            accepted = False
        assert accepted == apart, first


def test_a_tile_that_writes_part_of_what_it_reads_is_named():
    memory = torch.zeros(2000)
    with pytest.raises(InvalidArgumentError, match="add: tile 0 would write a part of what it reads"):
        check_tiles(added(memory, 604, 1))
    with pytest.raises(InvalidArgumentError, match="by two outputs"):
        check_tiles(heads(torch.zeros(3000), 0, 1, value=0))
