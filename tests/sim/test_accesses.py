"""Loads, stores and pointers: bounds, lifetime, symmetry, and what launches leave behind."""

from __future__ import annotations

import re

import pytest
import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode

import triton_dist
import triton_dist.language as dl
from triton_dist import errors

THIS_FILE = re.escape(__file__)


def line_of(text: str) -> int:
    """Number of the first line of this file that contains ``text``."""
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if text in line)


@triton.jit
def copy_kernel(source, target, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    tl.store(target + offset, tl.load(source + offset))


def test_out_of_bounds_names_line_tensor_and_index():
    with pytest.raises(errors.OutOfBoundsError) as caught:
        copy_kernel[(1,)](torch.zeros(60), torch.zeros(64), COUNT=64)
    assert re.search(
        rf"{THIS_FILE}:{line_of('tl.store(target + offset, tl.load(source')}: load of source\[60\], 16 bytes past the end",
        str(caught.value),
    )
    with pytest.raises(errors.OutOfBoundsError, match=r"store of target\[33\], 124 bytes past the end: target has 33 elements"):
        copy_kernel[(1,)](torch.zeros(64), torch.zeros(33), COUNT=64)


@triton.jit
def at_kernel(data, index):
    tl.store(data + index, 1.0)


@pytest.mark.parametrize("index", [-1, 10, 1 << 20, -(1 << 20)])
def test_scalar_accesses_are_checked(index):
    with pytest.raises(errors.OutOfBoundsError, match=rf"store of data\[{index}\]"):
        at_kernel[(1,)](torch.zeros(10), index)


def test_neighbouring_tensors_are_not_reached():
    """A pointer belongs to its own tensor even where another one lies right behind it."""
    both = torch.zeros(20)
    near = torch.frombuffer(memoryview(both.numpy())[:10], dtype=torch.float32)
    at_kernel[(1,)](both, 15)
    assert both[15] == 1.0
    with pytest.raises(errors.OutOfBoundsError):
        at_kernel[(1,)](near, 40)


def test_null_and_unknown_pointers():
    with pytest.raises(errors.OutOfBoundsError, match="NULL pointer"):
        at_kernel[(1,)](torch.zeros(0), 0)


def test_tensors_without_memory_are_not_in_the_way():
    """Fake tensors, as torch.compile leaves them, and such on the meta device, while all tensors are looked through."""
    with FakeTensorMode():
        alive = [torch.zeros(3), torch.zeros(3).view(3)]
    alive += [torch.zeros(3, device="meta"), torch.zeros(3).to_sparse(), torch.func.functionalize(lambda x: x)(torch.zeros(3))]
    with pytest.raises(errors.OutOfBoundsError, match="NULL pointer"):
        at_kernel[(1,)](torch.zeros(0), 0)
    assert len(alive) == 5


@triton.jit
def through_table_kernel(table, out):
    row = tl.program_id(0)
    pointer = tl.load(table + row).to(tl.pointer_type(tl.float32))
    tl.store(out + row, tl.load(pointer + row))


def test_pointer_tables_and_use_after_free():
    tensors = [torch.arange(8.0) + 10 * row for row in range(3)]

    def run():
        inside = [tensor.clone() for tensor in tensors]
        table = torch.tensor([tensor.data_ptr() for tensor in inside])
        out = torch.zeros(3)
        through_table_kernel[(3,)](table, out)
        triton_dist.synchronize()
        return out.tolist()

    assert triton_dist.simulate(run, 1) == [[0.0, 11.0, 22.0]]

    def freed():
        inside = [tensor.clone() for tensor in tensors]
        table = torch.tensor([tensor.data_ptr() for tensor in inside])
        inside.clear()
        through_table_kernel[(3,)](table, torch.zeros(3))
        triton_dist.synchronize()

    with pytest.raises(errors.OutOfBoundsError):
        triton_dist.simulate(freed, 1)


@triton_dist.jit
def reach_kernel(data, peer):
    tl.store(dl.symm_at(data, peer), 1.0)


def test_symm_at_is_checked():
    def ordinary():
        reach_kernel[(1,)](torch.zeros(4), 0)
        triton_dist.synchronize()

    with pytest.raises(errors.NotSymmetricError, match="'data' is an ordinary tensor"):
        triton_dist.simulate(ordinary, 2)

    def beyond(peer):
        symmetric = triton_dist.symm_zeros((4,), torch.float32)
        reach_kernel[(1,)](symmetric, peer)
        triton_dist.synchronize()

    for peer in (2, -1):
        with pytest.raises(errors.UnreachablePeerError, match=f"no rank {peer} in a world of 2"):
            triton_dist.simulate(beyond, 2, args=(peer,))
    with pytest.raises(errors.UnreachablePeerError, match="node 1"):
        triton_dist.simulate(beyond, 2, args=(1,), num_nodes=2)


@triton_dist.jit
def notify_kernel(flags, peer):
    dl.notify(flags, peer, signal=1, sig_op="set", comm_scope="intra_node")


def test_notify_is_checked():
    def ordinary():
        notify_kernel[(1,)](torch.zeros(4, dtype=torch.int32), 0)
        triton_dist.synchronize()

    with pytest.raises(errors.NotSymmetricError):
        triton_dist.simulate(ordinary, 2)

    @triton_dist.jit
    def notify_beyond_kernel(flags, index):
        dl.notify(flags + index, 1, signal=1, sig_op="add", comm_scope="intra_node")

    def beyond(index):
        my_flags = triton_dist.symm_zeros((4,), torch.int32)
        notify_beyond_kernel[(1,)](my_flags, index)
        triton_dist.synchronize()

    for index in (-2, 4, 100):
        with pytest.raises(errors.OutOfBoundsError, match=rf"notify of my_flags\[{index}\] of rank 1"):
            triton_dist.simulate(beyond, 2, args=(index,))


def test_arguments_live_until_the_launch_has_run():
    def run():
        out = torch.zeros(64)
        for number in range(20):
            copy_kernel[(1,)](torch.full((64,), float(number)), out, COUNT=64)
        return out.tolist()

    assert triton_dist.simulate(run, 2) == [[19.0] * 64] * 2


def test_a_freed_symmetric_tensor_is_not_an_ordinary_one():
    def run():
        data = triton_dist.symm_zeros((16,), torch.float32)
        address = data.data_ptr()
        triton_dist.symm_free(data)
        at_kernel[(1,)](address_of(address), 3)
        triton_dist.synchronize()

    with pytest.raises(errors.UseAfterFreeError, match=r"store of data\[3\]"):
        triton_dist.simulate(run, 2)


class address_of:
    """A launch argument that only has an address, as other libraries' tensors do."""

    dtype = torch.float32

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


def test_launches_do_not_pile_up_memory():
    """Many launches with the same tensors leave nothing behind: no registrations, no suspended programs."""
    import gc
    import tracemalloc

    source, target = torch.ones(64), torch.zeros(64)

    def launch(times: int) -> None:
        for _ in range(times):
            copy_kernel[(2,)](source, target, COUNT=64)

    launch(20)
    gc.collect()
    tracemalloc.start()
    launch(20)
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    launch(200)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 30_000


@triton.jit
def byte_offsets_kernel(x, OFFSET: tl.constexpr, STEP: tl.constexpr, KIND: tl.constexpr):
    address = x.to(tl.int64) + OFFSET
    pointer = address.to(tl.pointer_type(tl.float32))
    if KIND == "scalar":
        tl.store(pointer, 1.0)
    elif KIND == "row":
        tl.store(pointer + tl.arange(0, 4), 1.0)
    else:
        bytes_off = tl.arange(0, 4).to(tl.int64) * tl.arange(0, 4) * STEP
        tl.store((address + bytes_off).to(tl.pointer_type(tl.float32)), 1.0)


@pytest.mark.parametrize(("kind", "offset", "step"), [("scalar", 2, 4), ("row", 2, 4), ("scattered", 0, 2)])
def test_addresses_that_are_not_multiples_of_the_element_are_named(kind, offset, step):
    x = torch.zeros(32)
    with pytest.raises(errors.MisalignedAccessError, match=rf"store of 4 bytes at .* \(x \+ {2} bytes\).*not a multiple of 4"):
        byte_offsets_kernel[(1,)](x, offset, step, kind)
    assert not x.any()


def test_tensors_on_other_devices_are_refused():
    with pytest.raises(errors.InvalidArgumentError, match="'source' is on meta"):
        copy_kernel[(1,)](torch.zeros(64, device="meta"), torch.zeros(64), COUNT=64)


@triton_dist.jit
def same_place_on_a_peer_kernel(words, out, peer, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    same = tl.broadcast_to(words, (COUNT,))
    tl.store(out + offset, tl.load(dl.symm_at(same, peer)))
    behind = words + COUNT  # one past the end is a pointer of the same heap; only the load of it would be wrong
    tl.store(out + COUNT + offset, tl.load(dl.symm_at(behind, peer) - COUNT + offset))


def test_symm_at_of_a_splat_and_of_the_end():
    def run():
        words = triton_dist.symm_full((4,), 10 + triton_dist.rank(), torch.int32)
        dist.init_process_group("gloo")
        dist.barrier()
        out = torch.zeros(8, dtype=torch.int32)
        same_place_on_a_peer_kernel[(1,)](words, out, 1 - triton_dist.rank(), 4)
        return out.tolist()

    assert triton_dist.simulate(run, 2) == [[11] * 8, [10] * 8]
