"""Tuning, torch's symmetric library and ``torch.compile`` on GPUs; started by torchrun, prints ``name: right`` for each part on rank 0.

``torchrun --nproc-per-node 2 tests/gpu/tune_program.py`` runs all parts, or those that are named as arguments; two ranks or more, which
share a GPU with ``CUDA_VISIBLE_DEVICES=0``. A part that takes longer than ``LIMIT`` seconds ends the program, which says where it stood.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[2]))

import triton_dist
from tests.dialects import bodies as symm
from tests.runtime import test_attempts as attempts
from tests.tools import compile_bodies
from tests.tools.autotune import bodies
from triton_dist.ops import all_reduce
from triton_dist.ops.collectives.barrier import barrier
from triton_dist.runtime.attempts import attempt
from triton_dist.runtime.team import find_team

LIMIT = 150.0
BOUND = 60.0
SHARED = torch.cuda.device_count() < int(os.environ.get("WORLD_SIZE", "1"))
"""Whether ranks share a GPU: their kernels then run by turns, some milliseconds each."""


def same_everywhere(value: object) -> bool:
    """Whether all ranks have the same."""
    values: list = [None] * triton_dist.world_size()
    dist.all_gather_object(values, value)
    return all(each == values[0] for each in values)


def a_hang_is_taken_back() -> bool:
    """A kernel of rank 0 waits for what nobody sends, in a second each time; the world goes on."""
    words = triton_dist.symm_zeros((1,), torch.int32)

    def act() -> None:
        attempts.exchange_kernel[(1,)](words, 7 if triton_dist.rank() == 0 else 1)

    for _ in range(3):
        words.zero_()
        barrier()
        outcomes = attempt(find_team(None, "test"), act, 1.0, "test")
        if not outcomes[0].hung or "words[0] of rank 0 == 7" not in (outcomes[0].reason or ""):
            print(outcomes, flush=True)
            return False
        words.zero_()
        barrier()
        attempts.exchange_kernel[(1,)](words, 1)
        triton_dist.synchronize()
        if words.item() != 1:
            return False
    return True


def a_rank_that_fails_lets_the_others_go() -> bool:
    """The others don't wait for the bound of a minute."""
    words = triton_dist.symm_zeros((1,), torch.int32)

    def act() -> None:
        if triton_dist.rank() == 1:
            raise ValueError("not on this rank")
        attempts.exchange_kernel[(1,)](words, 7)

    begun = time.monotonic()
    outcomes = attempt(find_team(None, "test"), act, BOUND, "test")
    took = time.monotonic() - begun
    if took > BOUND / 2 or outcomes[1].reason != "ValueError: not on this rank" or not outcomes[0].hung:
        print(took, outcomes, flush=True)
        return False
    return bool(all_reduce(torch.ones(4, device=triton_dist.device()))[0].item() == triton_dist.world_size())


def fails_before_an_allocation() -> bool:
    attempts.raises_before_an_allocation_on_gpus()
    return True


def device_barriers() -> bool:
    attempts.device_barriers_begin_anew()
    return True


def operator() -> bool:
    """One config fails on rank 0, one hangs on rank 1."""
    chosen = bodies.operator()
    if triton_dist.rank() == 0:
        print(bodies.rotate_tuned.report.table(), flush=True)
    return chosen == "chunk=16, extra=0" and same_everywhere(chosen)


def kernel() -> bool:
    """Stock triton.autotune, one of whose configs hangs."""
    chosen, report = bodies.kernel()
    if triton_dist.rank() == 0:
        print(report.table(), flush=True)
    return same_everywhere((chosen, report.rows))


@triton_dist.autotune([{"busy": 0}, {"busy": 1}, {"busy": 2}], cache=False, runs=3)
def skewed(busy: int) -> int:
    """What is fast on one rank is slow on another; the third is even. Where ranks take turns, long enough for the turns not to matter."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    milliseconds = {0: 20 if rank == size - 1 else 1, 1: 25 if rank == 0 else 1, 2: 6}[busy]
    torch.cuda._sleep(milliseconds * 1_500_000 * (20 if SHARED else 1))
    return busy


def divergent_times() -> bool:
    chosen = skewed()
    times = [row.milliseconds for row in skewed.report.rows]
    if chosen != 2 and triton_dist.rank() == 0:
        print(f"  chose {chosen} of {times} ms", flush=True)
    return chosen == 2 and same_everywhere(times)


@triton_dist.autotune([{"method": "one_shot"}, {"method": "two_shot"}], key=["x"])
def tuned_all_reduce(x: torch.Tensor, method: str) -> torch.Tensor:
    return all_reduce(x, method=method)


def collective_with_a_cache() -> bool:
    """Kept on disk, and read from there by a later search."""
    right = True
    for count in (1 << 12, 1 << 18, 1 << 21):
        x = torch.full((count,), 1.0 + triton_dist.rank(), device=triton_dist.device())
        out = tuned_all_reduce(x)
        right = right and bool((out == sum(range(1, triton_dist.world_size() + 1))).all().item())
        if triton_dist.rank() == 0:
            print(tuned_all_reduce.report.table(), flush=True)
    tuned_all_reduce._chosen.clear()
    tuned_all_reduce(torch.ones(1 << 12, device=triton_dist.device()))
    return right and tuned_all_reduce.report.cached


def symm_page() -> bool:
    symm.pages_kernel()
    return True


def symm_codes() -> bool:
    symm.error_codes()
    return True


def symm_operations() -> bool:
    for dtype in symm.DTYPES:
        symm.reduces(dtype, "constant_kernel")
    symm.reduces(torch.float32, "runtime_kernel")
    symm.not_a_number()
    return True


def compiled_add() -> bool:
    """A kernel that does not communicate, between Inductor's."""
    x, y = (torch.randn(100, device=triton_dist.device()) for _ in range(2))
    return torch.allclose(torch.compile(compile_bodies.add, fullgraph=True)(x, y), torch.relu(x + y) * 2)


def compiled_rotate() -> bool:
    """A kernel that does, in one graph."""
    return compile_bodies.run("rotate", "inductor", True)


def compiled_reduce_in_graph() -> bool:
    """An operator as one of torch's, in one graph."""
    return compile_bodies.run("reduce_in_graph", "inductor", True)


def compiled_reduce() -> bool:
    """An operator as it is, between two graphs."""
    return compile_bodies.run("reduce", "inductor", False)


PARTS = [
    a_hang_is_taken_back, a_rank_that_fails_lets_the_others_go, fails_before_an_allocation, device_barriers, operator, kernel,
    divergent_times, collective_with_a_cache, symm_page, symm_codes, symm_operations, compiled_add, compiled_rotate,
    compiled_reduce_in_graph, compiled_reduce,
]  # fmt: skip


def end_at(part: str) -> None:
    """From a thread: a part hangs. Says where the main thread stands, innermost first, and ends the process; torchrun ends the others."""
    stack = traceback.extract_stack(sys._current_frames()[threading.main_thread().ident or 0])
    places = (f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(stack[-8:]))
    print(f"rank {os.environ.get('RANK')}, {part}: not done after {LIMIT:g} s: {' < '.join(places)}", flush=True)
    os._exit(3)


def main() -> int:
    # Compiled in this process and kept by each rank for itself: ranks that compile the same do not wait for each other's locks.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp())
    triton_dist.initialize(wait_timeout=BOUND)
    folder = [tempfile.mkdtemp() if triton_dist.rank() == 0 else ""]
    dist.broadcast_object_list(folder, device=torch.device("cpu"))
    os.environ["TRITON_DIST_AUTOTUNE_DIR"] = folder[0]
    wrong_parts = 0
    for part in PARTS:
        if sys.argv[1:] and part.__name__ not in sys.argv[1:]:
            continue
        right, begun = False, time.monotonic()
        timer = threading.Timer(LIMIT, end_at, (part.__name__,))
        timer.daemon = True
        timer.start()
        # A rank that compiles longer than another must not make that one's wait too long.
        triton_dist.initialize(wait_timeout=2 * BOUND if part.__name__.startswith("compiled") else BOUND)
        try:
            right = part()
        except Exception as error:  # noqa: BLE001 - the other parts are run, too
            where = traceback.extract_tb(error.__traceback__)[-1]
            said = " ".join(str(error).split())[:400]
            print(
                f"rank {triton_dist.rank()}, {part.__name__}: {type(error).__name__} at {where.filename}:{where.lineno}: {said}", flush=True
            )
        everyone: list = [None] * triton_dist.world_size()
        dist.all_gather_object(everyone, right)
        wrong = [rank for rank, there in enumerate(everyone) if not there]
        wrong_parts += bool(wrong)
        if triton_dist.rank() == 0:
            print(f"{part.__name__}: {f'wrong on ranks {wrong}' if wrong else 'right'}", flush=True)
            print(f"  {time.monotonic() - begun:.1f} s", flush=True)
        timer.cancel()
    triton_dist.finalize()
    return min(wrong_parts, 1)


if __name__ == "__main__":
    sys.exit(main())
