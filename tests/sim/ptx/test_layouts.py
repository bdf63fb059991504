"""Which thread has which element of a tile: as the compiler lays it out, where that is plain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gpu.programs import run, simulated
from tests.gpu.ptx_memory_cases import thread_programs
from triton_dist.sim.asm_layouts import Layout, elements_by_layout, find_layouts, layout_of, needs_layouts

PROGRAMS = {program.name.partition(".tile_")[2]: program for program in thread_programs() if ".tile_" in program.name}


def told(name):
    with simulated():
        found = run(PROGRAMS[name], "cpu")
    return found["words"], found["out"]


@pytest.mark.parametrize("name", ["default", "behind_a_load", "of_two_axes", "across"])
def test_every_element_is_visited_once(name):
    words, threads = told(name)
    assert set(words) == {1}
    assert np.bincount(threads, minlength=128).tolist() == [4] * 128


def test_who_has_what():
    elements = np.arange(512)
    assert (told("default")[1] == elements % 128).all()
    # Loads of 16 bytes give each thread four neighbours, of the axis that is contiguous.
    for name in ("behind_a_load", "of_two_axes", "across"):
        assert (told(name)[1] == elements // 4).all(), name


def owner(layout, shape, element):
    """The thread and warp digits of an element, axis by axis, as the layout is defined."""
    lane = warp = 0
    lane_unit = warp_unit = 1
    rest = {}
    for axis in reversed(range(len(shape))):
        rest[axis], element = element % shape[axis], element // shape[axis]
    for axis in layout.order:
        at = rest[axis] // layout.size[axis]
        lane += at % layout.threads[axis] * lane_unit
        warp += at // layout.threads[axis] % layout.warps[axis] * warp_unit
        lane_unit, warp_unit = lane_unit * layout.threads[axis], warp_unit * layout.warps[axis]
    return 32 * warp + lane


POWERS = st.sampled_from([1, 2, 4])


@settings(max_examples=60, deadline=None)
@given(
    size=st.tuples(POWERS, POWERS), split=st.integers(0, 5), warps=st.sampled_from([(1, 4), (4, 1), (2, 2)]),
    order=st.sampled_from([(0, 1), (1, 0)]), repeats=st.tuples(POWERS, POWERS), pack=st.sampled_from([1, 2, 4]),
)  # fmt: skip
def test_layouts_of_two_axes(size, split, warps, order, repeats, pack):
    layout = Layout(size, (1 << split, 32 >> split), warps, order)
    shape = tuple(a * b * c * d for a, b, c, d in zip(size, layout.threads, warps, repeats, strict=True))
    found = elements_by_layout(layout, shape, 128, pack)
    assert found is not None
    for thread in range(0, 128, 7):
        mine = found[:, thread].reshape(-1)
        mine = mine[mine >= 0]
        assert len(set(mine.tolist())) == len(mine) == int(np.prod(shape)) // 128
        assert all(owner(layout, shape, int(element)) == thread for element in mine)
    first = found[:, 0].reshape(-1)[: size[order[0]]]
    step = shape[1] if order[0] == 0 else 1
    assert first[first >= 0].tolist() == [step * number for number in range(len(first[first >= 0]))]


def test_a_small_tile_is_in_several_threads():
    layout = Layout((1,), (32,), (4,), (0,))
    found = elements_by_layout(layout, (16,), 128, 1)
    assert found[0, :, 0].tolist() == [thread % 16 for thread in range(128)]
    assert elements_by_layout(Layout((4,), (32,), (4,), (0,)), (2,), 128, 1) is None
    assert elements_by_layout(layout, (512,), 256, 1) is None


IR = """#blocked = #ttg.blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#odd = #ttg.linear<{register = [], lane = [], warp = [], block = []}>
    %6 = tt.elementwise_inline_asm "mov.u32 $0, \\22%tid.x\\22;\\0A" {constraints = "=r,l", packed_element = 1 : i32, pure = false} %4 : tensor<512x!tt.ptr<i32>, #blocked> -> tensor<512xi32, #blocked> loc(#loc4)
    %7 = tt.elementwise_inline_asm "nop" {constraints = "=r,l", packed_element = 2 : i32, pure = false} %4 : tensor<8x4xi32, #odd> -> tensor<8x4xi32, #odd> loc(#loc4)
"""  # noqa: E501


def test_what_is_read_in_the_text():
    found = find_layouts(IR)
    text = 'mov.u32 $0, "%tid.x";\n'
    assert layout_of(found, text, (512,)) == Layout((4,), (32,), (4,), (0,))
    assert layout_of(found, text, (256,)) is None and layout_of(found, "nop", (8, 4)) is None and layout_of(None, text, (512,)) is None
    twice = IR + IR.splitlines()[2].replace("#blocked", "#odd") + "\n"
    assert layout_of(find_layouts(twice), text, (512,)) is None, "a block that the compiler runs in two layouts"
    assert needs_layouts(IR) and not needs_layouts(IR.replace("pure = false", "pure = true").replace("%tid", "%dit"))
