"""What a thread does that waits in vain: the assembly run over a real wait board, and what it costs a kernel that does not."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import triton
import triton.language as tl
from compile_targets import NVIDIA, source_of, target_of
from ptx_thread import Clock, Memory, run
from test_pipelining import ALIGNED, DESCRIPTOR_TYPES, descriptor_gemm_kernel
from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability

import triton_dist.language as dl
from triton_dist.primitives.cuda_wait import wait_assembly
from triton_dist.runtime import context_layout
from triton_dist.runtime import wait_layout as layout
from triton_dist.runtime.address_map import CONTEXT
from triton_dist.runtime.wait_board import Record, WaitBoard

KERNEL = 0xFEDC_BA98_7654_3210
BOARD = 0x7000_0000_0000
WORDS = 0x1080_0020_0000


class Gpu:
    """A thread's memory: the context page, a board and some words, and who it is."""

    def __init__(self, tmp_path: Path) -> None:
        self.board = WaitBoard.create(0, 1, "", tmp_path)
        self.page = bytearray(4096)
        self.words = bytearray(1024)
        self.memory = Memory([(CONTEXT, self.page), (BOARD, self.board._memory), (WORDS, self.words)])
        self.clock = Clock()
        self.place_board(BOARD)

    def place_board(self, address: int) -> None:
        self.page[context_layout.WAIT_BOARD : context_layout.WAIT_BOARD + 8] = address.to_bytes(8, "little")

    def set_word(self, index: int, value: int, bits: int = 32) -> None:
        size = bits // 8
        self.words[index * size : (index + 1) * size] = (value & ((1 << bits) - 1)).to_bytes(size, "little")

    def wait(self, expected, *, bits=32, cmp="eq", count=1, lane=0, lanes=0xFFFFFFFF, gives_word=False, most=100_000):
        single = count == 1
        text = wait_assembly(
            bits=bits, single=single, semantic="acquire", scope="sys", cmp=cmp, kernel=KERNEL, after="", gives_word=gives_word
        )
        names = ["$1", "$2"] if single else ["$1", "$2", "$3"]
        for name in names:
            text = text.replace(name, f"%operand{name[1:]}")
        text = text.replace("${:uid}", "5").replace("$0", "%result")
        values = [WORDS, expected] if single else [WORDS, count, expected]
        registers = {f"%operand{number}": value & 0xFFFFFFFFFFFFFFFF for number, value in enumerate(values, 1)}
        registers |= {"%laneid": lane, "%lanemask_lt": (1 << lane) - 1, "%activemask": lanes}
        registers |= {"%ctaid.x": 3, "%ctaid.y": 4, "%ctaid.z": 5}
        return run(text, registers, self.memory, self.clock, most)

    def after_loads(self, count, act):
        """Do something once the board was looked at ``count`` times."""
        looks = [0]

        def on_load(address):
            if address == BOARD + layout.ABORT:
                looks[0] += 1
                if looks[0] == count:
                    act()

        self.memory.on_load = on_load


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "POLLS_BETWEEN_LOOKS", 16)  # each is interpreted
    made = Gpu(tmp_path)
    yield made
    made.board.close()


HOLDS = {"eq": (7, 7), "ne": (7, 6), "gt": (7, 8), "ge": (7, 7), "lt": (7, 6), "le": (7, 7)}
"""For each comparison a value waited for and a word that fulfils it."""


@pytest.mark.parametrize("cmp", HOLDS)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("count", [1, 3])
def test_a_wait_that_holds_looks_at_nothing_else(gpu, cmp, bits, count):
    expected, word = HOLDS[cmp]
    for index in range(count):
        gpu.set_word(index, word, bits)
    gpu.memory.ranges = [entry for entry in gpu.memory.ranges if entry[0] == WORDS]  # anything else would be a fault
    state = gpu.wait(expected, bits=bits, cmp=cmp, count=count)
    assert state["%result"] == 0
    assert gpu.memory.stores == []


WRAPPED = {
    "gt": (0x7FFFFFFF, -0x80000000),
    "ge": (0x7FFFFFFF, -0x80000000),
    "lt": (-0x80000000, 0x7FFFFFFF),
    "le": (-0x80000000, 0x7FFFFFFF),
}


@pytest.mark.parametrize("cmp", WRAPPED)
def test_a_counter_that_wrapped_around_is_past(gpu, cmp):
    expected, word = WRAPPED[cmp]
    gpu.set_word(0, word)
    gpu.wait(expected, cmp=cmp)
    assert gpu.memory.stores == []


@pytest.mark.parametrize("bits, seen, expected", [(32, -2, 7), (32, 1 << 20, -1), (64, -(1 << 40), 1 << 50)])
@pytest.mark.parametrize("count", [1, 3])
def test_past_the_bound_it_writes_a_record_and_falls_through(gpu, bits, seen, expected, count):
    gpu.board.bound = 0.5
    for index in range(count):
        gpu.set_word(index, expected, bits)
    gpu.set_word(count - 1, seen, bits)
    begin = gpu.clock.now
    gpu.wait(expected, bits=bits, count=count, lane=count - 1, lanes=1 << (count - 1))
    (record,) = gpu.board.records(layout.STAMP_TIMED_OUT)
    address = WORDS + (count - 1) * bits // 8
    assert record == Record(KERNEL, 5, (3, 4, 5), address, expected, seen, bits, "eq", record.seconds)
    assert 0.5 <= record.seconds < 0.7
    assert 0.5e9 <= gpu.clock.now - begin < 0.8e9
    assert gpu.board.abort == layout.TIMED_OUT
    stamp, abort = gpu.memory.stores[-2:]
    assert (stamp - BOARD - layout.RECORDS) % layout.RECORD_BYTES == layout.RECORD_STAMP
    assert abort == BOARD + layout.ABORT, "whoever sees the abort word finds the record"


@pytest.mark.parametrize("bits", [32, 64])
def test_a_thread_that_waits_for_itself_gets_the_word(gpu, bits):
    gpu.set_word(0, 9, bits)
    assert gpu.wait(7, bits=bits, cmp="ge", gives_word=True)["%result"] == 9
    gpu.board.bound = 0.1
    assert gpu.wait(10, bits=bits, cmp="ge", gives_word=True)["%result"] == 9
    assert gpu.board.abort == layout.TIMED_OUT


def test_records_go_round_the_ring(gpu):
    gpu.board.bound = 0.1
    counter = slice(context_layout.RECORD_COUNTER, context_layout.RECORD_COUNTER + 4)
    gpu.page[counter] = (0xFFFFFFFF).to_bytes(4, "little")
    gpu.wait(1)
    assert gpu.page[counter] == bytes(4)
    assert (
        gpu.memory.stores[-2]
        == BOARD + layout.RECORDS + layout.RECORD_SLOTS * layout.RECORD_BYTES - layout.RECORD_BYTES + layout.RECORD_STAMP
    )


def test_one_lane_of_the_warp_writes(gpu):
    """Another one goes on polling, and falls through when it finds the abort word."""
    gpu.board.bound = 0.1
    gpu.after_loads(50, lambda: setattr(gpu.board, "abort", layout.TIMED_OUT))
    gpu.wait(1, lane=3)
    assert gpu.memory.stores == []
    assert gpu.board.records(layout.STAMP_TIMED_OUT) == []


def test_the_first_of_the_active_lanes_writes(gpu):
    gpu.board.bound = 0.1
    gpu.wait(1, lane=3, lanes=0b11000)
    assert len(gpu.board.records(layout.STAMP_TIMED_OUT)) == 1


@pytest.mark.parametrize("reason", [layout.TIMED_OUT, layout.PEER_LOST])
@pytest.mark.parametrize("count", [1, 3])
def test_an_aborted_wait_falls_through_silently(gpu, reason, count):
    gpu.board.abort = reason
    gpu.wait(1, count=count)
    assert gpu.memory.stores == []


def test_without_a_bound_it_waits_until_the_word_comes(gpu):
    gpu.after_loads(100, lambda: gpu.set_word(0, 1))
    gpu.wait(1)
    assert gpu.memory.stores == []
    with pytest.raises(AssertionError, match="waits for ever"):
        gpu.wait(2)


def test_without_a_board_it_waits_until_the_word_comes(gpu):
    gpu.place_board(0)
    gpu.board.abort = layout.TIMED_OUT
    with pytest.raises(AssertionError, match="waits for ever"):
        gpu.wait(1)


def test_a_bound_set_while_it_waits_holds(gpu):
    gpu.after_loads(10, lambda: setattr(gpu.board, "bound", 0.2))
    gpu.wait(1)
    assert gpu.board.abort == layout.TIMED_OUT


def test_a_request_is_answered_once_and_the_wait_goes_on(gpu):
    requests = iter([17, 17, 17, 18, 0, 0])

    def change():
        gpu.board.request = next(requests, 0)
        gpu.after_loads(2, change)

    gpu.after_loads(2, change)
    with pytest.raises(AssertionError, match="waits for ever"):
        gpu.wait(1)
    assert len(gpu.board.records(17)) == len(gpu.board.records(18)) == 1
    assert gpu.page[context_layout.RECORD_COUNTER] == 2, "one record each"
    assert gpu.board.abort == 0


def test_words_of_one_lane_are_thirty_two_apart(gpu):
    for index in range(70):
        gpu.set_word(index, 1)
    gpu.set_word(35, 0)
    gpu.board.bound = 0.1
    gpu.wait(1, count=70, lane=4)
    assert gpu.board.abort == 0, "lane 4 polls words 4, 36 and 68"
    gpu.wait(1, count=70, lane=3, lanes=1 << 3)
    (record,) = gpu.board.records(layout.STAMP_TIMED_OUT)
    assert record.address == WORDS + 4 * 35


@triton.jit
def two_waits_kernel(words, out, n):
    dl.wait(words, 1, "sys", "acquire", waitValue=n)
    dl.wait(words, n, "sys", "acquire", waitValue=n, cmp="ge")
    tl.store(out, 1)


@pytest.fixture
def resources(compiled, tmp_path):
    """What the assembler says of a kernel: registers, barriers, bytes of stack and spills."""

    def assemble(kernel, arch, *arguments, **options):
        source = tmp_path / "kernel.ptx"
        source.write_text(compiled(kernel, arch, *arguments, **options)["ptx"])
        command = [
            get_ptxas(arch).path,
            "-v",
            f"--gpu-name={sm_arch_from_capability(arch)}",
            str(source),
            "-o",
            str(tmp_path / "kernel.cubin"),
        ]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        numbers = {name: int(count) for count, name in re.findall(r"(\d+) bytes (stack frame|spill stores|spill loads)", said)}
        return numbers | {name: int(count) for count, name in re.findall(r"(\d+) (registers|barriers)", said)}

    return assemble


@pytest.mark.parametrize("arch", (90, 100))
@pytest.mark.parametrize("wait", ["consumed", "many"])
@pytest.mark.parametrize("num_warps", [4, 8])
def test_a_product_pays_no_more_than_a_few_registers(resources, arch, wait, num_warps):
    options = {"num_warps": num_warps, "num_stages": 3}
    without = resources(descriptor_gemm_kernel, arch, DESCRIPTOR_TYPES, {"WAIT": "none", "NOTIFY": False}, ALIGNED[3:], **options)
    with_wait = resources(descriptor_gemm_kernel, arch, DESCRIPTOR_TYPES, {"WAIT": wait, "NOTIFY": False}, ALIGNED[3:], **options)
    assert with_wait["registers"] <= without["registers"] + 4
    assert {**with_wait, "registers": 0} == {**without, "registers": 0}, "no spills, no more barriers"


@pytest.mark.parametrize("arch", NVIDIA)
def test_a_wait_alone_needs_few_registers_and_one_barrier(resources, arch):
    needs = resources(two_waits_kernel, arch, {"words": "*i64", "out": "*i32", "n": "i32"})
    assert needs["registers"] <= 40
    assert needs["spill stores"] == needs["spill loads"] == 0
    assert needs["barriers"] == 1


@pytest.mark.parametrize("arch", NVIDIA)
def test_a_wait_that_holds_at_once_is_a_load_a_compare_and_a_branch(compiled, arch):
    text = compiled(two_waits_kernel, arch, {"words": "*i32", "out": "*i32", "n": "i32"})["ptx"]
    poll = [
        line for line in text[text.index("\nPOLL") : text.index("bra DONE")].splitlines() if line and not line.lstrip().startswith(".loc")
    ]
    assert [line.split(".")[0].split()[0] for line in poll] == ["POLL0:", "ld", "setp", "@!%again"]


def test_nothing_of_the_bound_is_in_the_kernel():
    """So the same kernel from the disk cache serves any bound; the stamp has the layout, and nothing else of the board."""
    assembly = wait_assembly(bits=32, single=True, semantic="acquire", scope="sys", cmp="eq", kernel=1, after="")
    assert f"{context_layout.word_address(context_layout.WAIT_BOARD):#x}" in assembly


def test_kernels_have_numbers_of_their_own(compiled):
    """The hash tells signatures, constants and options apart, and is the same whenever the same is compiled."""

    def numbers(types, **options):
        source = source_of(two_waits_kernel, types, {})
        text = triton.compile(source, target=target_of(90), options=options or None).asm["ptx"]
        return set(re.findall(rf"{layout.MARKER} ([0-9a-f]{{16}})", text))

    first = numbers({"words": "*i32", "out": "*i32", "n": "i32"})
    assert len(first) == 1
    assert numbers({"words": "*i32", "out": "*i32", "n": "i32"}) == first
    assert numbers({"words": "*i64", "out": "*i32", "n": "i32"}) != first
    assert numbers({"words": "*i32", "out": "*i32", "n": "i32"}, num_warps=8) != first
