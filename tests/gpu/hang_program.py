"""Programs that hang, on ranks on GPUs, and how each hang ends; prints ``name: right`` for each part.

``python tests/gpu/hang_program.py`` runs all parts, or those that are named as arguments. Each starts its ranks by itself, without
torchrun, which would end the others as soon as one rank is gone; none takes longer than ``LIMIT`` seconds, hung ranks are killed.
``python tests/gpu/hang_program.py --ranks 4`` uses four ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import errors
from triton_dist.ops import all_reduce, gemm_ar, gemm_rs
from triton_dist.runtime import processes
from triton_dist.runtime.streams import Wait, Write, own_stream, signal_batch
from triton_dist.runtime.wait_board import path_of

LIMIT = 150.0
"""Seconds after which the ranks of a part are killed; starting them and compiling takes most of a part's time."""

BOUND = 2.0
GRACE = 5.0


@triton_dist.jit
def consumer_kernel(flags, out, value):
    program = tl.program_id(0)
    dl.wait(flags + program, 1, "sys", "acquire", waitValue=value)  # consumer
    tl.store(out + program, value)


@triton_dist.jit
def wait_for_peers(flags, count, epoch):
    dl.wait_ge(flags, count, "sys", "acquire", waitValue=epoch)  # peers


@triton_dist.jit
def meeting_kernel(flags, count, epoch):
    for peer in range(count):
        dl.notify(flags + dl.rank(), peer, signal=epoch, sig_op="set", comm_scope="intra_node")
    wait_for_peers(flags, count, epoch)  # meeting


def line_of(comment: str) -> str:
    """The file and line of a statement, as errors name it."""
    lines = Path(__file__).read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {comment}"))
    return f"{Path(__file__).name}:{number}"


def tensors(dtype: torch.dtype = torch.int32) -> tuple[torch.Tensor, torch.Tensor]:
    return triton_dist.symm_zeros((8,), dtype, name="flags"), torch.zeros(8, dtype=torch.int32, device=triton_dist.device())


def expect(error: type[Exception], act: Callable[[], object], within: float, *parts: str) -> None:
    """Check that ``act`` raises the error in time, with these texts in it."""
    began = time.monotonic()
    try:
        act()
    except error as caught:
        took = time.monotonic() - began
        missing = [part for part in parts if part not in str(caught)]
        assert not missing, f"{missing} not in {caught}"
        assert took < within, f"{type(caught).__name__} after {took:.1f} s"
    else:
        raise AssertionError(f"no {error.__name__}")


def works() -> None:
    """A world in which signals go round."""
    flags, out = tensors()
    meeting_kernel[(1,)](flags, triton_dist.world_size(), 1)
    triton_dist.write_value(flags[7], 9)
    consumer_kernel[(1,)](flags[7:], out, 9)
    triton_dist.synchronize()
    assert out[0].item() == 9 and flags[: triton_dist.world_size()].tolist() == [1] * triton_dist.world_size()


# ---------------------------------------------------------------------- what each rank does


def missing_notify() -> None:
    """Three of four programs get their signal. The error names the fourth; then the world is made again."""
    triton_dist.initialize(wait_timeout=BOUND)
    rank = triton_dist.rank()
    flags, out = tensors()
    flags[:3] = 5
    consumer_kernel[(4,)](flags, out, 5)
    where = f"rank {rank}, program (3, 0, 0) of consumer_kernel at "
    texts = (f"rank {rank}: a wait took longer than the 2 s", where, line_of("consumer"), f"flags[3] of rank {rank} == 5; it is 0")
    expect(errors.WaitTimeoutError, triton_dist.synchronize, BOUND + GRACE, *texts)
    expect(errors.WaitTimeoutError, lambda: triton_dist.symm_zeros((4,)), 1.0, *texts)
    triton_dist.finalize()
    triton_dist.initialize(wait_timeout=30)
    works()
    triton_dist.finalize()


def missing_peer() -> None:
    """Rank 0 does not come to a meeting, in a function that a kernel calls; many warps, 64-bit words. Rank 0 sees no error."""
    triton_dist.initialize(wait_timeout=BOUND)
    rank, size = triton_dist.rank(), triton_dist.world_size()
    flags, _ = tensors(torch.int64)
    if rank > 0:
        meeting_kernel[(1,)](flags, size, 1, num_warps=8)
        texts = (
            "of meeting_kernel at ",
            line_of("meeting"),
            "in wait_for_peers at ",
            line_of("peers"),
            f"flags[0] of rank {rank} >= 1; it is 0",
        )
        expect(errors.WaitTimeoutError, triton_dist.synchronize, BOUND + GRACE, *texts)
        triton_dist.finalize()
    else:
        time.sleep(BOUND + 1)
        triton_dist.check()
        # The others won't come to an allocation any more.
        expect(errors.TritonDistError, lambda: triton_dist.symm_zeros((4,)), 2 * BOUND + GRACE)
        triton_dist.finalize()


def rank_zero_stays_away(call: Callable[[], object], *texts: str) -> None:
    """All other ranks make the call, and are told; rank 0 sees no error before the end."""
    triton_dist.synchronize()
    if triton_dist.rank() > 0:
        call()
        expect(errors.WaitTimeoutError, triton_dist.synchronize, BOUND + GRACE, *texts)
    else:
        time.sleep(BOUND + 1)
        triton_dist.check()
    with contextlib.suppress(errors.PeerLostError):  # rank 0 may find the others gone
        triton_dist.finalize()


def missing_flags() -> None:
    """An all-reduce whose data carry their own signal; the word named is the flag's half."""
    triton_dist.initialize(wait_timeout=BOUND)
    rank, x = triton_dist.rank(), torch.ones(5, device=triton_dist.device())
    all_reduce(x, method="ll")
    where = f"rank {rank}, program (0, 0, 0) of low_latency_kernel at "
    texts = (where, "low_latency.py:", "flagged words[", f"of rank {rank} == 2; it is 0")
    rank_zero_stays_away(lambda: all_reduce(x, method="ll"), *texts)


def missing_products() -> None:
    """Products in pieces, for which streams wait, not kernels; the error names the word."""
    triton_dist.initialize(wait_timeout=BOUND)
    rank, size = triton_dist.rank(), triton_dist.world_size()
    a, b = torch.ones(64 * size, 32, device=triton_dist.device()), torch.ones(32, 48, device=triton_dist.device())
    for operator in (gemm_rs, gemm_ar):
        operator(a, b, method="pipelined", pieces=2)
    texts = (f"rank {rank}, program (0, 0, 0) of stream_wait_kernel at ", "stream_waits.py:", f"of rank {rank} >= 1; it is 0")
    rank_zero_stays_away(lambda: gemm_ar(a, b, method="pipelined", pieces=2), *texts)


def stream_waits() -> None:
    """Streams that wait for words of 32 and 64 bits, "eq" and "ge", in a graph too; then one that waits for what nobody writes."""
    triton_dist.initialize(wait_timeout=BOUND)
    rank = triton_dist.rank()
    word = triton_dist.symm_zeros((3,), torch.int64, name="word")
    short = triton_dist.symm_zeros((3,), torch.int32, name="short")
    own = own_stream()
    for value in (5, -3, 1 << 40):
        triton_dist.write_value(word[1], value)
        triton_dist.wait_value(word[1], value, "eq")
    triton_dist.wait_value(word[1], 1 << 39, "ge")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        signal_batch([Write(short[2], 7), Wait(short[2], 7), Write(short[2], 0)])
    graph.replay()
    triton_dist.synchronize()
    triton_dist.wait_value(short[1], 2, "ge", own)
    texts = (f"rank {rank}, program (0, 0, 0) of stream_wait_kernel at ", f"short[1] of rank {rank} >= 2; it is 0")
    expect(errors.WaitTimeoutError, triton_dist.synchronize, BOUND + GRACE, *texts)
    triton_dist.finalize()


def replayed_graph() -> None:
    """The host never waits for the device: the error comes at ``check``, from a kernel in a graph that worked before."""
    triton_dist.initialize(wait_timeout=BOUND)
    rank = triton_dist.rank()
    flags, out = tensors()
    flags.fill_(1)
    consumer_kernel[(2,)](flags, out, 1)
    triton_dist.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        consumer_kernel[(2,)](flags, out, 1)
    for _ in range(3):
        graph.replay()
    triton_dist.synchronize()
    flags.zero_()
    graph.replay()

    def check_often() -> None:
        deadline = time.monotonic() + BOUND + GRACE
        while time.monotonic() < deadline:
            triton_dist.check()
            time.sleep(0.01)

    expect(errors.WaitTimeoutError, check_often, BOUND + GRACE, line_of("consumer"), f"of rank {rank} == 1; it is 0")
    triton_dist.finalize()


def bound_for_a_running_kernel() -> None:
    """A kernel that hangs without a bound gets one."""
    triton_dist.initialize()
    flags, out = tensors()
    consumer_kernel[(1,)](flags, out, 1)
    time.sleep(3 * BOUND)
    triton_dist.check()
    triton_dist.initialize(wait_timeout=BOUND)
    expect(errors.WaitTimeoutError, triton_dist.synchronize, BOUND + GRACE, line_of("consumer"))
    triton_dist.finalize()


def hangs_for_attach() -> None:
    """Hangs without a bound until the launcher has looked, twice; then the signal comes and nothing has happened."""
    triton_dist.initialize()
    flags, out = tensors()
    side = triton_dist.Stream()
    triton_dist.write_value(flags[4], 0, side)
    side.synchronize()
    consumer_kernel[(4,)](flags[2:], out, 6)
    print("hangs", flush=True)
    sys.stdin.readline()
    for index in range(2, 6):
        triton_dist.write_value(flags[index], 6, side)
    triton_dist.synchronize()
    assert out.tolist() == [6, 6, 6, 6, 0, 0, 0, 0]
    triton_dist.finalize()


def killed_in_kernel() -> None:
    """Rank 1 is killed; the others wait for it in a kernel, with a bound that would last longer."""
    triton_dist.initialize(wait_timeout=60)
    flags, _ = tensors()
    meeting_kernel[(1,)](flags, triton_dist.world_size(), 2)  # compiled and loaded
    triton_dist.synchronize()
    if triton_dist.rank() == 1:
        time.sleep(3)  # until the others wait
        os.kill(os.getpid(), signal.SIGKILL)
    meeting_kernel[(1,)](flags, triton_dist.world_size(), 3)
    texts = ("rank 1 (process ", "was killed", line_of("meeting"), f"flags[1] of rank {triton_dist.rank()} >= 3; it is 2")
    expect(errors.PeerLostError, triton_dist.synchronize, 3 + 10.0, *texts)
    triton_dist.finalize()


def killed_in_allocation() -> None:
    """Rank 1 is killed; the others wait for it on the host."""
    triton_dist.initialize(wait_timeout=60)
    works()
    if triton_dist.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    expect(errors.PeerLostError, lambda: triton_dist.symm_zeros((4,)), 10.0, "rank 1 (process ", "was killed")
    triton_dist.finalize()


def failed_rank() -> None:
    """Rank 1 ends with an exception; the others wait for it in a kernel."""
    triton_dist.initialize(wait_timeout=60)
    flags, _ = tensors()
    triton_dist.synchronize()
    if triton_dist.rank() == 1:
        time.sleep(3)
        raise ValueError("on purpose")
    meeting_kernel[(1,)](flags, triton_dist.world_size(), 2)
    expect(errors.PeerLostError, triton_dist.synchronize, 3 + 10.0, "rank 1 (process ", "ended with an error")
    triton_dist.finalize()


def one_kernel_many_bounds() -> None:
    """The bound comes from the environment; says how long the wait took."""
    triton_dist.initialize()
    flags, out = tensors()
    triton_dist.synchronize()
    began = time.monotonic()
    consumer_kernel[(1,)](flags, out, 1)
    expect(errors.WaitTimeoutError, triton_dist.synchronize, 60.0, line_of("consumer"))
    print(f"took {time.monotonic() - began}", flush=True)
    triton_dist.finalize()


# ---------------------------------------------------------------------- what the launcher does


def free_port() -> int:
    """One that nobody listens on, and that the system gives no connection in the meantime, as it does with those from 32768 on."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(15_000, 30_000)))
            return probe.getsockname()[1]


class Ranks:
    """The processes of one part."""

    def __init__(self, part: Callable[[], None], size: int, **environment: str) -> None:
        port = free_port()
        self.processes = []
        for rank in range(size):
            own = {
                "RANK": rank,
                "LOCAL_RANK": rank,
                "WORLD_SIZE": size,
                "LOCAL_WORLD_SIZE": size,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            }
            variables = {**os.environ, **environment, **{name: str(value) for name, value in own.items()}}
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, __file__, "--rank-of", part.__name__],
                    env=variables,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        self.said = [""] * size
        self.timer = threading.Timer(LIMIT, self.kill)
        self.timer.daemon = True
        self.timer.start()

    def kill(self) -> None:
        for process in self.processes:
            process.kill()

    def wait_for(self, line: str) -> None:
        """Read what every rank prints until all have printed that line."""
        for rank, process in enumerate(self.processes):
            while line not in self.said[rank].splitlines():
                text = process.stdout.readline()
                assert text, f"rank {rank} ended: {self.said[rank]}"
                self.said[rank] += text

    def end(self, *codes: int) -> list[str]:
        """What each rank printed, once all have ended with these codes; nothing of them may be left."""
        try:
            for process in self.processes:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write("\n")
                    process.stdin.flush()
            for rank, process in enumerate(self.processes):
                self.said[rank] += process.communicate()[0]
        finally:
            self.timer.cancel()
            self.kill()
        wrong = [rank for rank, process in enumerate(self.processes) if process.returncode != codes[rank]]
        assert not wrong, "\n".join(
            f"rank {rank} ended with {self.processes[rank].returncode}: {self.said[rank][-3000:]}" for rank in wrong
        )
        left = [str(path_of(process.pid)) for process in self.processes if path_of(process.pid).exists()]
        assert not left, f"left behind: {left}"
        return self.said


def launch_missing_notify(size: int) -> None:
    said = Ranks(missing_notify, size).end(*[0] * size)
    assert all("triton_dist: WaitTimeoutError: " in text for text in said), "the watchdog prints"


def launch_missing_peer(size: int) -> None:
    Ranks(missing_peer, size).end(*[0] * size)


def launch_missing_flags(size: int) -> None:
    Ranks(missing_flags, size).end(*[0] * size)


def launch_missing_products(size: int) -> None:
    Ranks(missing_products, size).end(*[0] * size)


def launch_stream_waits(size: int) -> None:
    Ranks(stream_waits, size).end(*[0] * size)


def launch_replayed_graph(size: int) -> None:
    Ranks(replayed_graph, size).end(*[0] * size)


def launch_bound_for_a_running_kernel(size: int) -> None:
    Ranks(bound_for_a_running_kernel, size).end(*[0] * size)


def launch_attach(size: int) -> None:
    ranks = Ranks(hangs_for_attach, size)
    try:
        ranks.wait_for("hangs")
        time.sleep(0.5)
        command = [sys.executable, "-c", f"from triton_dist.tools.attach import attach; raise SystemExit(attach({os.getpid()}))"]
        for _ in range(2):
            shown = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert shown.returncode == 0, shown.stdout + shown.stderr
            flat = " ".join(shown.stdout.split())
            for rank in range(size):
                for index in range(2, 6):
                    assert f"flags[{index}] of rank {rank} == 6" in flat, shown.stdout
            assert line_of("consumer") in flat, shown.stdout
        ranks.end(*[0] * size)
    finally:
        ranks.kill()
    gone = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert gone.returncode == 1 and "world on GPUs" in gone.stdout, gone.stdout


def launch_killed_in_kernel(size: int) -> None:
    Ranks(killed_in_kernel, size).end(*killed(size))


def launch_killed_in_allocation(size: int) -> None:
    Ranks(killed_in_allocation, size).end(*killed(size))


def launch_failed_rank(size: int) -> None:
    ranks = Ranks(failed_rank, size)
    pids = [process.pid for process in ranks.processes]
    ranks.end(*[0 if rank != 1 else 1 for rank in range(size)])
    assert all(processes.start_time(pid) is None for pid in pids)


def killed(size: int) -> list[int]:
    return [0 if rank != 1 else -signal.SIGKILL for rank in range(size)]


def launch_one_kernel_many_bounds(size: int) -> None:
    """The same kernels from the disk cache, whatever the bound."""
    with tempfile.TemporaryDirectory() as folder:
        files: set[Path] = set()
        for bound in (1.0, 4.0):
            said = Ranks(one_kernel_many_bounds, size, TRITON_CACHE_DIR=folder, TRITON_DIST_WAIT_TIMEOUT=str(bound)).end(*[0] * size)
            for text in said:
                took = float(next(line for line in text.splitlines() if line.startswith("took ")).split()[1])
                assert bound <= took < bound + 30, f"bound {bound}, took {took}"
            now = set(Path(folder).rglob("*.cubin"))
            assert now and (not files or now == files), "compiled again"
            files = now


PARTS = {name.removeprefix("launch_"): part for name, part in list(globals().items()) if name.startswith("launch_")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="parts to run; all by default")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank_of:
        globals()[arguments.rank_of]()
        torch.distributed.destroy_process_group()  # torch may abort a process that ends with threads of gloo
        return 0
    wrong = 0
    for name in arguments.parts or PARTS:
        began = time.monotonic()
        try:
            PARTS[name](arguments.ranks)
        except Exception:
            wrong += 1
            print(f"{name}: wrong\n{traceback.format_exc()}", flush=True)
        else:
            print(f"{name}: right ({time.monotonic() - began:.1f} s)", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
