"""Each operator very often, with random shapes and ranks that come late: every result is compared, and memory may not grow.

``torchrun --nproc-per-node 2 tests/gpu/soak_program.py --calls 100000 all_reduce gemm_rs`` prints one line an operator, without names for
all of them. Values are small integers, so that every sum is exact. Without a GPU it runs on CPU processes.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

import triton_dist
from triton_dist import ops

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.worlds.world import meet

SHAPES, VARIANTS = 12, 2
"""Cases of an operator: shapes, and inputs of each."""
LATE_EVERY = 64
"""A rank comes late in one call of so many."""
LATE_SECONDS, LATE_CYCLES = 1e-3, 2_000_000
GROWTH_BYTES = 64 << 20
"""What the host's memory may grow by, once every case was called and a tenth of the calls were made."""

Case = tuple[Callable[[], torch.Tensor], torch.Tensor]
"""A call, and what it has to return."""


@dataclass
class Draw:
    """Random numbers that all ranks draw alike. ranks: the inputs of each of them, on the device of this one."""

    seed: int

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.size, self.rank, self.device = triton_dist.world_size(), triton_dist.rank(), triton_dist.device()

    def inputs(self, shape: tuple[int, ...], dtype: torch.dtype, bound: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(self.random.getrandbits(40))
        made = [torch.randint(-bound, bound + 1, shape, generator=generator) for _ in range(self.size)]
        return [one.to(self.device, dtype) for one in made]

    def length(self) -> int:
        """Elements: often few, sometimes many, seldom a multiple of anything."""
        return self.random.choice((1, 7, 255, 256, 1000, 4097, 65_536, 300_001))

    def dtype(self) -> torch.dtype:
        return self.random.choice((torch.float32, torch.bfloat16, torch.float16, torch.int32))


def all_reduce(draw: Draw) -> Case:
    x = draw.inputs((draw.length(),), draw.dtype(), 15)
    method = draw.random.choice(("auto", "one_shot", "two_shot", "ll"))
    return lambda: ops.all_reduce(x[draw.rank], method=method, exact=True), torch.stack(x).sum(0).to(x[0].dtype)


def all_gather(draw: Draw) -> Case:
    x = draw.inputs((draw.random.randint(1, 30), draw.random.choice((1, 8, 333))), draw.dtype(), 100)
    return lambda: ops.all_gather(x[draw.rank]), torch.cat(x)


def reduce_scatter(draw: Draw) -> Case:
    rows = draw.random.randint(1, 20)
    x = draw.inputs((rows * draw.size, draw.random.choice((1, 8, 333))), draw.dtype(), 15)
    expected = torch.stack(x).sum(0).to(x[0].dtype)[rows * draw.rank :][:rows]
    return lambda: ops.reduce_scatter(x[draw.rank], exact=True), expected


def all_to_all(draw: Draw) -> Case:
    rows = draw.random.randint(1, 20)
    x = draw.inputs((rows * draw.size, draw.random.choice((1, 8, 333))), draw.dtype(), 100)
    expected = torch.cat([one[rows * draw.rank :][:rows] for one in x])
    return lambda: ops.all_to_all(x[draw.rank], exact=True), expected


def all_to_all_splits(draw: Draw) -> Case:
    most = draw.random.randint(1, 20)
    x = draw.inputs((most * draw.size, draw.random.choice((1, 8, 333))), draw.dtype(), 100)
    counts = [[draw.random.randint(0, most) for _ in range(draw.size)] for _ in range(draw.size)]
    first = [sum(sent[: draw.rank]) for sent in counts]
    parts = [one[begin : begin + sent[draw.rank]] for one, begin, sent in zip(x, first, counts, strict=True)]
    expected, splits = torch.cat(parts), torch.tensor(counts[draw.rank], device=draw.device)
    capacity = expected.shape[0]
    return lambda: ops.all_to_all(x[draw.rank], splits, capacity=capacity)[0], expected


def broadcast(draw: Draw) -> Case:
    x, source = draw.inputs((draw.length(),), draw.dtype(), 100), draw.random.randrange(draw.size)
    out = torch.empty_like(x[0])
    return lambda: ops.broadcast(x[draw.rank], source, out=out, exact=True), x[source]


def barrier(draw: Draw) -> Case:
    """The next rank's word is written before it, read behind it, and written again behind another one."""
    word = triton_dist.symm_zeros((1,), torch.int32)
    there = triton_dist.symm_peer(word, (draw.rank + 1) % draw.size)
    seen, value = torch.zeros(1, dtype=torch.int32, device=draw.device), draw.random.randint(1, 100)

    def call() -> torch.Tensor:
        there.fill_(value)
        ops.barrier()
        seen.copy_(word)
        ops.barrier()
        return seen

    return call, torch.full((1,), value, dtype=torch.int32, device=draw.device)


def _product(draw: Draw, rows: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """``a`` and ``b`` of every rank."""
    depth, columns = 8 * draw.random.randint(1, 16), 8 * draw.random.randint(1, 20)
    dtype = draw.random.choice((torch.bfloat16, torch.float16))
    return draw.inputs((rows, depth), dtype, 1), draw.inputs((depth, columns), dtype, 1)


def ag_gemm(draw: Draw) -> Case:
    a, b = _product(draw, draw.random.randint(1, 150))
    return lambda: ops.ag_gemm(a[draw.rank], b[draw.rank]), (torch.cat(a).float() @ b[draw.rank].float()).to(a[0].dtype)


def _in_pieces(draw: Draw, others: tuple[str, ...]) -> dict:
    """Options: half of the calls are "pipelined"."""
    return {"method": draw.random.choice((*others, *["pipelined"] * len(others))), "pieces": draw.random.randint(1, 8)}


def gemm_rs(draw: Draw) -> Case:
    rows, options = draw.random.randint(1, 150), _in_pieces(draw, ("auto", "direct", "split"))
    a, b = _product(draw, rows * draw.size)
    total = torch.stack([one.float() @ other.float() for one, other in zip(a, b, strict=True)]).sum(0).to(a[0].dtype)
    return lambda: ops.gemm_rs(a[draw.rank], b[draw.rank], **options), total[rows * draw.rank :][:rows]


def gemm_ar(draw: Draw) -> Case:
    rows, options = draw.random.randint(draw.size, 150), _in_pieces(draw, ("auto", "split", "two_shot"))
    a, b = _product(draw, rows)
    total = torch.stack([one.float() @ other.float() for one, other in zip(a, b, strict=True)]).sum(0).to(a[0].dtype)
    return lambda: ops.gemm_ar(a[draw.rank], b[draw.rank], **options), total


OPERATORS = (
    all_reduce, all_gather, reduce_scatter, all_to_all, all_to_all_splits, broadcast, barrier, ag_gemm, gemm_rs, gemm_ar,
)  # fmt: skip


def memory() -> tuple[int, int]:
    """Bytes that this process has of its device and of its host."""
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    return (torch.cuda.memory_reserved() if torch.cuda.is_available() else 0), resident


def soak(make: Callable[[Draw], Case], calls: int, seconds: float, seed: int) -> tuple[bool, str]:
    """Whether every result was right and no memory was lost, and what there is to say.

    Every case is called once before the ``calls`` that are counted: what is compiled and allocated then is kept.
    """
    draw = Draw(seed)
    cases = [[make(draw) for _ in range(VARIANTS)] for _ in range(SHAPES)]
    wrong = torch.zeros(1, dtype=torch.int64, device=draw.device)
    for variants in cases:
        for call, expected in variants:
            wrong += (call() != expected).any()
    triton_dist.synchronize()
    made, begin, before = 0, time.monotonic(), memory()
    settled = max(calls // 10, 1)
    while made < calls:
        call, expected = draw.random.choice(draw.random.choice(cases))
        if draw.random.randrange(LATE_EVERY) == 0:
            _be_late(draw)
        out = call()
        wrong += (out != expected).any()
        made += 1
        if made == settled:
            triton_dist.synchronize()
            before = memory()
        if made % 1000 == 0 and _over(begin, seconds):
            break
    triton_dist.synchronize()
    elapsed, after = time.monotonic() - begin, memory()
    grown = [then - now for then, now in zip(after, before, strict=True)]
    mistakes = int(wrong.item())
    right = mistakes == 0 and grown[0] <= 0 and grown[1] < GROWTH_BYTES and made == calls
    said = (
        f"{made} of {calls} calls, {mistakes} wrong, {1e6 * elapsed / made:.0f} us a call, memory grew by {grown[0]} and {grown[1]} bytes"
    )
    return right, said


def _be_late(draw: Draw) -> None:
    """One rank, the same to all, comes late: its host, or its GPU."""
    late, host = draw.random.randrange(draw.size), draw.random.randrange(2)
    if draw.rank != late:
        return
    if host or draw.device.type != "cuda":
        time.sleep(LATE_SECONDS)
    else:
        torch.cuda._sleep(LATE_CYCLES)


def _over(begin: float, seconds: float) -> bool:
    """Whether the time is over, on any rank."""
    triton_dist.synchronize()
    flag = torch.tensor([float(time.monotonic() - begin > seconds)], device=triton_dist.device())
    return bool(ops.all_reduce(flag, op="max", exact=True).item())


def main() -> int:
    names = {operator.__name__: operator for operator in OPERATORS}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*", help=f"of {', '.join(names)}")
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=600, help="bound for an operator; fewer calls than asked for are a failure")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if unknown := [name for name in options.operators if name not in names]:
        parser.error(f"no operator {', '.join(unknown)}; there are {', '.join(names)}")
    triton_dist.initialize(wait_timeout=60)
    failed = False
    for name in options.operators or names:
        right, said = soak(names[name], options.calls, options.seconds, options.seed)
        everyone = triton_dist.runtime.world.require_world("soak").gather((right, said))
        failed |= not all(one for one, _ in everyone)
        if triton_dist.rank() == 0:
            for rank, (one, what) in enumerate(everyone):
                if rank == 0 or not one:
                    print(f"{name}: {'right' if one else f'WRONG on rank {rank}'}, {what}", flush=True)
    meet()
    triton_dist.finalize()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
