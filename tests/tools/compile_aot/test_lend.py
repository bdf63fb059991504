"""A C program without Python joins the heaps that ranks lend, by a made-up driver: what it maps where, and what goes wrong."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import struct

import pytest

from tests.tools.compile_aot.kernels import scale_kernel
from tests.tools.compile_aot.test_library import HERE, STRICT, compile_c, run, small_program
from triton_dist.errors import InvalidArgumentError, NotInitializedError
from triton_dist.runtime import context_layout
from triton_dist.runtime.address_map import CONTEXT, GUARD_BYTES, STRIDE, heap_base
from triton_dist.runtime.context_words import first_words
from triton_dist.tools import build_library, lend_heap
from triton_dist.tools.compile_aot.lend import Offer, serving
from triton_dist.tools.compile_aot.library import cuda_headers

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

HEAP = 64 << 20
SLOT = f"{STRIDE:#x}"


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    compile_c(folder / "libcuda.so.1", "-shared", "-fPIC", f"-I{cuda_headers()}", HERE / "fake_driver.c")
    return folder


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Joins as the rank given, in the folder given, leaves, and says what came of it."""
    folder = tmp_path_factory.mktemp("joins")
    library = build_library([scale_kernel], folder / "library", "scales", compiler=f"gcc {STRICT}")
    body = """
    extern char *getenv(const char *); extern int atoi(const char *);
    int code = scales_join(getenv("FOLDER"), atoi(getenv("PLACE")));
    printf("join: %d%s%s\\n", code, code ? " " : "", code ? scales_last_error() : "");
    if (!code) {
        int again = scales_join(getenv("FOLDER"), 0);
        printf("again: %d\\nleave: %d\\n", again, scales_leave());
    }
    """
    return small_program(folder, library, body)


@contextlib.contextmanager
def lent(folder, world_size, ranks=None):
    """Ranks that lend files with their numbers, with the page of a world with a wait board."""
    with contextlib.ExitStack() as stack:
        for rank in ranks if ranks is not None else range(world_size):
            page = bytes(first_words(rank, world_size, rank, world_size, wait_board=0x1234).numpy())
            descriptor = os.memfd_create(f"heap{rank}")
            stack.callback(os.close, descriptor)
            os.write(descriptor, str(rank).encode())
            offer = Offer(rank, world_size, HEAP, page, f"0000:{rank:02}:00.0")
            stack.enter_context(serving(folder, offer, descriptor))
        yield


def test_the_heaps_are_where_they_are_in_every_process(program, driver, tmp_path):
    folder = tmp_path / "lent"
    with lent(folder, 3):
        lines = run(program, driver=driver, FOLDER=str(folder), PLACE="1")
        assert run(program, driver=driver, FOLDER=str(folder), PLACE="2")[0] == "device 0000:02:00.0", "it can be asked again"
    page = [
        "create 2097152 on 3",
        *(f"reserve {SLOT} at {CONTEXT:#x}", f"map 99, 2097152 bytes, at {CONTEXT:#x}", f"access {CONTEXT:#x} by 3 (3, 1)", "release 99"),
        f"page at {CONTEXT:#x}, {context_layout.TEAM_TABLE} bytes: rank 1 of 3, board 0",
    ]
    heaps = []
    for rank in range(3):
        slot, data = heap_base(rank), heap_base(rank) + GUARD_BYTES
        heaps += [f"reserve {SLOT} at {slot:#x}", f"map {1000 + rank}, {HEAP} bytes, at {data:#x}"]
        heaps += [f"access {data:#x} by 3 (3, 1)", f"release {1000 + rank}"]
    undone = [line for rank in (2, 1, 0) for line in left(heap_base(rank), heap_base(rank) + GUARD_BYTES, HEAP)]
    undone += [*left(CONTEXT, CONTEXT, 2 << 20), "release context of 3"]
    assert lines == ["device 0000:01:00.0", *page, *heaps, "join: 0", *undone, "again: -10", "leave: 0"]


def left(slot, address, size):
    return [f"unmap {size} at {address:#x}", f"give back {SLOT} at {slot:#x}"]


def reserved_and_given_back(lines):
    """The slots that were reserved, and those that were given back, last first."""
    reserved = [re.search(r"reserve \S+ at (\S+)", line) for line in lines]
    given = [re.search(r"give back \S+ at (\S+)", line) for line in lines]
    return [match[1] for match in reserved if match], [match[1] for match in given if match]


@pytest.mark.parametrize(
    ("world_size", "ranks", "settings", "words"),
    [
        (2, [0], {}, "join: -9 rank 1 does not lend its heap at"),
        (1, [], {}, "join: -9 rank 0 does not lend its heap at"),
        (2, None, {"FAKE_TAKEN": hex(heap_base(1))}, f"join: -10 something else is at {heap_base(1):#x}"),
        (2, None, {"FAKE_TAKEN": hex(CONTEXT)}, f"join: -10 something else is at {CONTEXT:#x}"),
        (2, None, {"FAKE_MARK": "1"}, "join: -10 this process has a symmetric heap already"),
        (3, None, {"FAKE_UNREACHABLE": "2"}, "join: 209 mapping the heap: no kernel image"),
        (200, [0], {}, "join: -9 what rank 0 offers"),
    ],
)
def test_what_goes_wrong_is_undone(program, driver, tmp_path, world_size, ranks, settings, words):
    folder = tmp_path / "lent"
    with lent(folder, world_size, ranks=ranks) if world_size < 100 else too_many(folder, world_size):
        lines = run(program, driver=driver, FOLDER=str(folder), PLACE="0", **settings)
    assert lines[-1].startswith(words), lines
    reserved, given = reserved_and_given_back(lines)
    assert sorted(reserved) == sorted(given)


@contextlib.contextmanager
def too_many(folder, world_size):
    """One rank of a world with more ranks than there is room for."""
    descriptor = os.memfd_create("heap")
    try:
        with serving(folder, Offer(0, world_size, HEAP, bytes(1024), "0000:00:00.0"), descriptor):
            yield
    finally:
        os.close(descriptor)


def test_another_version_is_refused(program, driver, tmp_path, monkeypatch):
    monkeypatch.setattr(context_layout, "LAYOUT_MARK", context_layout.LAYOUT_MARK + 1)
    with lent(tmp_path / "lent", 1):
        lines = run(program, driver=driver, FOLDER=str(tmp_path / "lent"), PLACE="0")
    assert lines == ["join: -4 rank 0's address map has version 2, scales was built for version 1; build the library again"]


def test_what_is_no_rank(program, driver, tmp_path):
    """Something else listens there, and says nothing of use."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "rank0"))
        listener.listen()
        answers = os.fork()
        if not answers:
            connection, _ = listener.accept()
            connection.sendall(b"hello")
            os._exit(0)
        lines = run(program, driver=driver, FOLDER=str(tmp_path), PLACE="0")
        os.waitpid(answers, 0)
    assert lines[0].startswith("join: -9 rank 0 does not lend its heap")


def test_the_folder(tmp_path):
    offer = Offer(0, 1, HEAP, b"", "")
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o755)
    with pytest.raises(InvalidArgumentError, match="others may enter"), serving(open_to_all, offer, 0):
        pass
    with pytest.raises(InvalidArgumentError, match="too long for a socket"), serving(tmp_path / ("x" * 100), offer, 0):
        pass
    folder = tmp_path / "mine"
    with serving(folder, offer, 0):
        assert folder.stat().st_mode & 0o777 == 0o700
        with pytest.raises(InvalidArgumentError, match="give a folder that no other job uses"), serving(folder, offer, 0):
            pass
    assert list(folder.iterdir()) == []
    with pytest.raises(NotInitializedError), lend_heap(folder):
        pass


def test_the_offer_is_as_c_reads_it():
    encoded = Offer(2, 3, HEAP, b"12345", "0000:01:00.0").encoded()
    assert len(encoded) == 64
    assert struct.unpack("<QQiiII", encoded[:32]) == (context_layout.LAYOUT_MARK, HEAP, 2, 3, 5, 0)
    assert encoded[32:] == b"0000:01:00.0".ljust(32, b"\0")
