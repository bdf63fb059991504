"""What the host puts on streams, captured into a CUDA graph and replayed 1,000 times with other inputs; and kernels loaded in time.

``torchrun --nproc-per-node 4 tests/gpu/stream_program.py`` runs all parts, or those that are named as arguments, and prints one line a
part. The parts are functions that any world can run: on simulated ranks, which have no graphs, the recorded work is queued again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from triton import knobs

import triton_dist
from triton_dist import errors, utils
from triton_dist.ops import ag_gemm, all_reduce, all_to_all, broadcast, reduce_scatter
from triton_dist.ops.collectives.barrier import barrier
from triton_dist.ops.gemm.plan import OWN_METHODS
from triton_dist.runtime.preload import Launch, preload

COUNT = 5000
REPLAYS = 1000
FEW_REPLAYS = 20
"""For ranks that share a GPU, whose turns take many milliseconds, and for simulated ones."""


def replays() -> int:
    """How often to replay."""
    own_gpu = triton_dist.device().type == "cuda" and torch.cuda.device_count() >= triton_dist.world_size()
    return REPLAYS if own_gpu else FEW_REPLAYS


def value(rank: int, call: int) -> float:
    """What ``rank`` sends in call number ``call``: exact in fp32."""
    return float(rank * 10_000 + call)


def neighbours() -> tuple[int, int]:
    """The ranks before and after this one."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    return (rank - 1) % size, (rank + 1) % size


def replay(record: Callable[[], None], feed: Callable[[int], None], wrong: Callable[[int], torch.Tensor]) -> bool:
    """Record once, then, again and again: new inputs by ``feed(call)``, the recorded work, and whether ``wrong(call)`` holds anywhere."""
    device = triton_dist.device()
    side, main = triton_dist.Stream(), triton_dist.current_stream()
    mistakes = torch.zeros(1, dtype=torch.int32, device=device)
    side.wait_stream(main)
    with triton_dist.stream(side):
        feed(0)
        record()  # allocates, compiles and loads what a capture can't
        mistakes += wrong(0)
        triton_dist.synchronize()
        again = record
        if device.type == "cuda":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side.handle):
                record()
            again = graph.replay
        for call in range(1, replays() + 1):
            feed(call)
            again()
            mistakes += wrong(call)
    main.wait_stream(side)
    return mistakes.item() == 0


def put_with_signal(dtype: torch.dtype) -> bool:
    """A put to the next rank by the copy engine, a word written behind it, a wait for the word, its reset, and a barrier."""
    before, after = neighbours()
    inbox, word = triton_dist.symm_zeros((COUNT,), torch.float32), triton_dist.symm_zeros((3,), dtype)
    source, result = torch.zeros(COUNT, device=triton_dist.device()), torch.zeros(COUNT, device=triton_dist.device())

    def record() -> None:
        triton_dist.copy_async(triton_dist.symm_peer(inbox, after), source)
        triton_dist.write_value(triton_dist.symm_peer(word, after)[1], 1)
        triton_dist.wait_value(word[1], 1, "eq")
        result.copy_(inbox)
        triton_dist.write_value(word[1], 0)
        barrier()

    rank = triton_dist.rank()
    return replay(record, lambda call: source.fill_(value(rank, call)), lambda call: (result != value(before, call)).any())


def put_with_signal_32() -> bool:
    """Signal words of 32 bits."""
    return put_with_signal(torch.int32)


def put_with_signal_64() -> bool:
    """Signal words of 64 bits."""
    return put_with_signal(torch.int64)


def get_between_barriers() -> bool:
    """Every rank takes the next one's data by the copy engine."""
    _, after = neighbours()
    data, result = triton_dist.symm_zeros((COUNT,), torch.float32), torch.zeros(COUNT, device=triton_dist.device())

    def record() -> None:
        barrier()
        triton_dist.copy_async(result, triton_dist.symm_peer(data, after))
        barrier()

    rank = triton_dist.rank()
    return replay(record, lambda call: data.fill_(value(rank, call)), lambda call: (result != value(after, call)).any())


def forked_streams() -> bool:
    """The put is on a stream that forks off inside the graph and comes back; the wait for the peer's put is on the other one."""
    before, after = neighbours()
    inbox, word = triton_dist.symm_zeros((COUNT,), torch.float32), triton_dist.symm_zeros((1,), torch.int32)
    source, result = torch.zeros(COUNT, device=triton_dist.device()), torch.zeros(COUNT, device=triton_dist.device())
    copier = triton_dist.Stream()

    def record() -> None:
        main = triton_dist.current_stream()
        copier.wait_stream(main)
        triton_dist.copy_async(triton_dist.symm_peer(inbox, after), source, copier)
        triton_dist.write_value(triton_dist.symm_peer(word, after)[0], 7, copier)
        triton_dist.wait_value(word[0], 7, "ge")
        result.copy_(inbox)
        triton_dist.write_value(word[0], 0)
        main.wait_stream(copier)
        barrier()

    rank = triton_dist.rank()
    return replay(record, lambda call: source.fill_(value(rank, call)), lambda call: (result != value(before, call)).any())


def barrier_counts() -> bool:
    """Behind a barrier every rank sees what every rank did before its own; by both names of the barrier."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    counter = triton_dist.symm_zeros((1,), torch.float32)
    seen = torch.zeros(2, size, device=triton_dist.device())

    def look(row: int) -> None:
        for peer in range(size):
            triton_dist.copy_async(seen[row, peer : peer + 1], triton_dist.symm_peer(counter, peer))

    def record() -> None:
        counter.add_(1)
        barrier()
        look(0)
        utils.nvshmem_barrier_all_on_stream()
        counter.add_(1)
        utils.nvshmem_barrier_all_on_stream()
        look(1)
        barrier()

    def wrong(call: int) -> torch.Tensor:
        return (seen[0] != 2 * call + 1).any() | (seen[1] != 2 * call + 2).any() | (counter[0] != 2 * call + 2)

    assert rank < size
    return replay(record, lambda call: None, wrong)


def gathered_products() -> bool:
    """ag_gemm by each method: a replay gives the bits that the call outside the graph gave for the same input."""
    right = [_gathered_product(method) for method in OWN_METHODS]  # all on every rank, whatever one of them finds
    return all(right)


def _gathered_product(method: str) -> bool:
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    rows, columns, depth, inputs = 72, 48, 80, 5
    generator = torch.Generator().manual_seed(7)
    matrices = [torch.randn(size * rows, depth, generator=generator).to(device, torch.bfloat16) for _ in range(inputs)]
    b = torch.randn(depth, columns, generator=generator).to(device, torch.bfloat16)
    first = [ag_gemm(a[rank * rows : (rank + 1) * rows], b, method=method) for a in matrices]
    right = True
    for a, eager in zip(matrices, first, strict=True):
        reference = a.double() @ b.double()
        right = right and ((eager.double() - reference).abs().max() / reference.abs().max()).item() < 8e-3
    shard, out = torch.empty(rows, depth, device=device, dtype=torch.bfloat16), torch.empty_like(first[0])

    def feed(call: int) -> None:
        shard.copy_(matrices[call % inputs][rank * rows : (rank + 1) * rows])

    def wrong(call: int) -> torch.Tensor:
        return (out.view(torch.int16) != first[call % inputs].view(torch.int16)).any()

    return replay(lambda: _call(shard, b, out, method), feed, wrong) and right


def _call(shard: torch.Tensor, b: torch.Tensor, out: torch.Tensor, method: str) -> None:
    ag_gemm(shard, b, out=out, method=method)


def exchanged_parts() -> bool:
    """reduce_scatter, broadcast, and all_to_all of equal parts and of numbers of rows that change from replay to replay."""
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    rows, width, inputs = 30, 70, 3
    base = torch.arange(float(size * rows), device=device)[:, None] + torch.zeros(width, device=device)
    numbers = torch.randint(0, rows + 1, (inputs, size, size), generator=torch.Generator().manual_seed(3), dtype=torch.int32)
    tables, columns = numbers[:, rank].to(device), numbers[:, :, rank].to(device)  # what this rank sends, and what it gets
    begins = numbers.cumsum(2) - numbers
    sent = [  # the rows for this rank, as the others have them but for what is added in each call
        torch.cat([base[begins[n, peer, rank] :][: numbers[n, peer, rank]] + 1000.0 * peer for peer in range(size)]) for n in range(inputs)
    ]
    mine = base[rank * rows : (rank + 1) * rows]
    x, splits, part = torch.empty_like(base), torch.empty_like(tables[0]), torch.empty_like(mine)
    everyone, root, equal, some = part.clone(), torch.empty_like(base), torch.empty_like(base), torch.empty_like(base)
    received = torch.empty_like(splits)

    def feed(call: int) -> None:
        x.copy_(base).add_(1000.0 * rank + call % 50)
        splits.copy_(tables[call % inputs])

    def record() -> None:
        reduce_scatter(x, out=part)
        broadcast(x, size - 1, out=root)
        all_to_all(x, out=equal)
        all_to_all(x, splits, out=some, received=received)

    def wrong(call: int) -> torch.Tensor:
        more, expected = call % 50, sent[call % inputs]
        everyone.copy_(size * (mine + more) + 1000.0 * (size * (size - 1) // 2))
        parts = (mine + more + 1000.0 * torch.arange(size, device=device)[:, None, None]).view(equal.shape)
        return (
            (part != everyone).any()
            | (root != base + 1000.0 * (size - 1) + more).any()
            | (equal != parts).any()
            | (received != columns[call % inputs]).any()
            | (some[: len(expected)] != expected + more).any()
        )

    return replay(record, feed, wrong)


def graph_on_another_stream() -> bool:
    """On a stream with no call before, a graph has the memory of another one; what has to be allocated is refused, and nothing hangs."""
    if triton_dist.device().type != "cuda":
        return True
    fresh, named = torch.cuda.Stream(), False
    graph = torch.cuda.CUDAGraph()
    x = torch.zeros(1000, device=triton_dist.device())
    all_reduce(x), barrier()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=fresh, capture_error_mode="thread_local"):
        total = all_reduce(x)
        barrier()
        try:
            triton_dist.symm_zeros((4,), torch.int32)
        except errors.CaptureError:
            named = True
    right = True
    for number in range(3):
        x.fill_(number + 1)
        graph.replay()
        right &= bool((total == (number + 1) * triton_dist.world_size()).all())
    return named and right


@triton.jit(do_not_specialize=["most"])
def spin_kernel(word, seen, most):
    """Poll until the word is set, at most ``most`` times; keep what was seen last."""
    polls = 0
    found = tl.atomic_add(word, 0, sem="acquire", scope="sys")
    while (found == 0) & (polls < most):
        found = tl.atomic_add(word, 0, sem="acquire", scope="sys")
        polls += 1
    tl.store(seen, found)


@triton.jit
def release_kernel(word, VALUE: tl.constexpr):
    """Set the word."""
    tl.atomic_xchg(word, VALUE, sem="release", scope="sys")


def loaded_before_waiting() -> bool:
    """A kernel that another one already waits for is launched; it was loaded before, so nothing is loaded then. Ends by itself."""
    device = triton_dist.device()
    word, seen = torch.zeros(1, dtype=torch.int32, device=device), torch.zeros(1, dtype=torch.int32, device=device)
    values = [triton_dist.rank() * 100 + number for number in range(1, 6)]  # a kernel of its own for each value
    side = triton_dist.Stream()
    side.wait_stream(triton_dist.current_stream())
    loads: list[str] = []
    right = True
    for number in values:
        spin, release = (word, seen, 2_000_000), (word,)
        # The bounded spin ends after a few seconds by itself, and then seen is 0.
        preload(
            "loaded_before_waiting",
            ("release", number),
            lambda spin=spin, release=release, number=number: [
                Launch(spin_kernel, spin),
                Launch(release_kernel, release, {"VALUE": number}),
            ],
        )
        hook = _count_loads(loads)
        try:
            spin_kernel[(1,)](*spin)
            with triton_dist.stream(side):
                release_kernel[(1,)](word, VALUE=number)
            right = right and seen.item() == number
        finally:
            hook()
        triton_dist.synchronize()
        word.zero_()
        triton_dist.synchronize()
    return right and (not loads or device.type != "cuda")


def _count_loads(loads: list[str]) -> Callable[[], None]:
    """Note every module that Triton loads from now on; call what is returned to stop."""

    def note(module: object, function: object, name: str, *rest: object) -> None:
        loads.append(name)

    knobs.runtime.kernel_load_start_hook.add(note)
    return lambda: knobs.runtime.kernel_load_start_hook.remove(note)


PARTS = (
    put_with_signal_32,
    put_with_signal_64,
    get_between_barriers,
    forked_streams,
    barrier_counts,
    gathered_products,
    exchanged_parts,
    graph_on_another_stream,
    loaded_before_waiting,
)


def main() -> None:
    triton_dist.initialize()
    chosen = sys.argv[1:]
    for part in PARTS:
        if chosen and part.__name__ not in chosen:
            continue
        right = part()
        triton_dist.synchronize()
        everyone: list = [None] * triton_dist.world_size()
        dist.all_gather_object(everyone, right)
        if triton_dist.rank() == 0:
            wrong = [rank for rank, there in enumerate(everyone) if not there]
            print(f"{part.__name__}: {f'wrong on ranks {wrong}' if wrong else 'right'}", flush=True)
    triton_dist.finalize()


if __name__ == "__main__":
    main()
