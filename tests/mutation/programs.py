"""The programs that mutants are run in: each checks its results, and reuses its buffers in several rounds, as a model would.

Imported in the process of a mutant only, so that what it imports is the mutant.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.kernels.common_ops import set_signal, wait_eq
from triton_dist.kernels.nvidia.common_ops import BarrierAllContext, barrier_all_intra_node_atomic_cas_block, barrier_all_on_stream
from triton_dist.mega_triton_kernel import ModelBuilder
from triton_dist.ops import ag_gemm, all_gather, all_reduce, all_to_all, broadcast, gemm_ar, gemm_rs, reduce_scatter
from triton_dist.ops.collectives.barrier import barrier, team_barrier
from triton_dist.ops.gemm.plan import Tiles
from triton_dist.runtime.world import require_world
from triton_dist.sim.gpus import GPU
from triton_dist.tools.mutate.run import Case

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
producer_consumer = importlib.import_module("01_producer_consumer")
simt = importlib.import_module("03_simt")
profiler = importlib.import_module("04_profiler")
autotune = importlib.import_module("20_autotune")
torch_symmetric = importlib.import_module("05_torch_symmetric_memory")
aot = importlib.import_module("22_aot")
inspected = importlib.import_module("23_inspect")
with contextlib.redirect_stdout(io.StringIO()):  # it says what it builds
    extern = importlib.import_module("24_build_extern")


def part_of(rank: int, call: int, count: int) -> torch.Tensor:
    return torch.randint(-100, 100, (count,), generator=torch.Generator().manual_seed(1000 * call + rank), dtype=torch.int32)


def gathers(counts: tuple[int, ...]) -> None:
    size, outs = triton_dist.world_size(), []
    for call, count in enumerate(counts):
        outs.append(all_gather(part_of(triton_dist.rank(), call, count), method="one_shot"))
    for call, count in enumerate(counts):
        assert torch.equal(outs[call], torch.cat([part_of(rank, call, count) for rank in range(size)])), "all_gather is wrong"


def sums(method: str, counts: tuple[int, ...]) -> None:
    size, outs = triton_dist.world_size(), []
    for call, count in enumerate(counts):
        outs.append(all_reduce(part_of(triton_dist.rank(), call, count), method=method))
    for call, count in enumerate(counts):
        assert torch.equal(outs[call], sum(part_of(rank, call, count) for rank in range(size))), "all_reduce is wrong"


def sums_in_place(counts: tuple[int, ...]) -> None:
    """In memory that is written again behind each call: all ranks' symmetric, the others' part of it elsewhere, or ordinary."""
    size, rank, outs = triton_dist.world_size(), triton_dist.rank(), []
    memories = [triton_dist.symm_zeros((max(counts),), torch.int32) for _ in range(2)]
    for call, count in enumerate(counts):
        x = memories[rank % 2][:count] if call % 3 or rank else torch.zeros(count, dtype=torch.int32)
        x.copy_(part_of(rank, call, count))
        outs.append(all_reduce(x, out=x, method="two_shot").clone())
    for call, count in enumerate(counts):
        assert torch.equal(outs[call], sum(part_of(peer, call, count) for peer in range(size))), "all_reduce in place is wrong"


def flagged(counts: tuple[int, ...]) -> None:
    """All that goes with its flags, in turn."""
    size, rank, calls = triton_dist.world_size(), triton_dist.rank(), []
    for call, count in enumerate(counts):
        x, source = part_of(rank, call, size * count), call // 3 % size
        given = [part_of(peer, call, size * count) for peer in range(size)]
        own = slice(rank * count, (rank + 1) * count)
        calls.append((all_reduce(x, method="ll"), sum(given)))
        calls.append((all_gather(x, method="ll"), torch.cat(given)))
        calls.append((reduce_scatter(x, method="ll"), sum(given)[own]))
        calls.append((all_to_all(x, method="ll"), torch.cat([part[own] for part in given])))
        calls.append((broadcast(x.clone(), source, method="ll"), given[source]))
    for out, expected in calls:
        assert torch.equal(out, expected), "a collective is wrong"


def sums_of_parts(counts: tuple[int, ...]) -> None:
    size, rank, outs = triton_dist.world_size(), triton_dist.rank(), []
    for call, count in enumerate(counts):
        outs.append(reduce_scatter(part_of(rank, call, size * count), method="one_shot"))
    for call, count in enumerate(counts):
        total = sum(part_of(peer, call, size * count) for peer in range(size))
        assert torch.equal(outs[call], total[rank * count : (rank + 1) * count]), "reduce_scatter is wrong"


def exchanges(counts: tuple[int, ...]) -> None:
    """Equal parts, and parts of other lengths that stand on the device, in turn."""
    size, rank, outs = triton_dist.world_size(), triton_dist.rank(), []
    for call, count in enumerate(counts):
        x = part_of(rank, call, size * count)
        splits = torch.tensor([count if peer == rank else count // 2 for peer in range(size)])
        outs.append((all_to_all(x, method="one_shot"), all_to_all(x, splits, capacity=size * count)))
    for call, count in enumerate(counts):
        equal, (out, received) = outs[call]
        sent = [part_of(peer, call, size * count) for peer in range(size)]
        lengths = [count if peer == rank else count // 2 for peer in range(size)]
        begins = [count // 2 * rank + (count - count // 2) * (peer < rank) for peer in range(size)]
        rows = torch.cat([x[begins[peer] : begins[peer] + lengths[peer]] for peer, x in enumerate(sent)])
        assert torch.equal(equal, torch.cat([x[rank * count : (rank + 1) * count] for x in sent])), "all_to_all is wrong"
        assert received.tolist() == lengths and torch.equal(out[: len(rows)], rows), "all_to_all by splits is wrong"


def broadcasts(counts: tuple[int, ...]) -> None:
    rank, outs = triton_dist.rank(), []
    for call, count in enumerate(counts):
        outs.append(broadcast(part_of(rank, call, count), call // 3, method="one_shot"))
    for call, count in enumerate(counts):
        assert torch.equal(outs[call], part_of(call // 3, call, count)), "broadcast is wrong"


@triton_dist.jit
def send_kernel(inbox, peer, value, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    tl.store(dl.symm_at(inbox, peer) + offset, offset + value)


@triton_dist.jit
def keep_kernel(inbox, out, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    tl.store(out + offset, tl.load(inbox + offset))


def rounds_with(meet) -> None:
    """Each round writes the neighbour's buffer, meets, reads its own, meets."""
    rank, size, count = triton_dist.rank(), triton_dist.world_size(), 32
    inbox = triton_dist.symm_zeros((count,), torch.int32)
    outs = torch.zeros(4, count, dtype=torch.int32)
    for number in range(4):
        send_kernel[(1,)](inbox, (rank + 1) % size, 100 * number + rank, count)
        meet()
        keep_kernel[(1,)](inbox, outs[number], count)
        meet()
    expected = torch.arange(count) + torch.arange(4)[:, None] * 100 + (rank + size - 1) % size
    assert torch.equal(outs, expected.int()), "a round is wrong"


def barriers() -> None:
    rounds_with(barrier)


@triton_dist.jit
def team_rounds_kernel(inbox, arrived, epoch, world_ranks, outs, ROUNDS: tl.constexpr, COUNT: tl.constexpr):
    """The same rounds in one kernel, with the barrier of ``ops`` as a device function."""
    offset, rank, size = tl.arange(0, COUNT), dl.rank(), dl.num_ranks()
    for number in range(ROUNDS):
        tl.store(dl.symm_at(inbox, (rank + 1) % size) + offset, offset + 100 * number + rank)
        team_barrier(arrived, epoch, world_ranks, rank, size)
        tl.store(outs + number * COUNT + offset, tl.load(inbox + offset))
        team_barrier(arrived, epoch, world_ranks, rank, size)


def team_barriers() -> None:
    rank, size = triton_dist.rank(), triton_dist.world_size()
    inbox, arrived = triton_dist.symm_zeros((16,), torch.int32), triton_dist.symm_zeros((size,), torch.int64)
    outs, epoch = torch.zeros(3, 16, dtype=torch.int32), torch.zeros(1, dtype=torch.int64)
    team_rounds_kernel[(1,)](inbox, arrived, epoch, torch.arange(size, dtype=torch.int32), outs, ROUNDS=3, COUNT=16)
    triton_dist.synchronize()
    for number in range(3):
        assert torch.equal(outs[number], torch.arange(16, dtype=torch.int32) + 100 * number + (rank - 1) % size), "the barrier is wrong"


def node_barriers() -> None:
    context = BarrierAllContext(True)
    rounds_with(lambda: barrier_all_on_stream(context))
    barrier_all_on_stream(context)
    context.finalize()


@triton_dist.jit
def inline_rounds_kernel(inbox, flags, outs, local_rank, rank, size, ROUNDS: tl.constexpr, COUNT: tl.constexpr):
    """The same rounds in one kernel, with the barrier as a device function."""
    offset = tl.arange(0, COUNT)
    for number in range(ROUNDS):
        tl.store(dl.symm_at(inbox, (rank + 1) % size) + offset, offset + 100 * number + rank)
        barrier_all_intra_node_atomic_cas_block(local_rank, rank, size, flags)
        tl.store(outs + number * COUNT + offset, tl.load(inbox + offset))
        barrier_all_intra_node_atomic_cas_block(local_rank, rank, size, flags)


def inline_barriers() -> None:
    rank, size = triton_dist.rank(), triton_dist.world_size()
    inbox, flags = triton_dist.symm_zeros((256,), torch.int32), triton_dist.symm_zeros((size,), torch.int32)
    outs = torch.zeros(3, 256, dtype=torch.int32)
    inline_rounds_kernel[(1,)](inbox, flags, outs, rank, rank, size, 3, 256)
    expected = torch.arange(256) + torch.arange(3)[:, None] * 100 + (rank + size - 1) % size
    assert torch.equal(outs, expected.int()), "a round is wrong"


def world_barriers() -> None:
    rounds_with(lambda: barrier_all_on_stream(None))


def signals() -> None:
    """A copy to the neighbour, and a signal behind it, by addresses."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    inbox, word = triton_dist.symm_zeros((64,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    peer = (rank + 1) % size
    triton_dist.copy_async(triton_dist.symm_peer(inbox, peer), torch.full((64,), 7 + rank, dtype=torch.int32))
    set_signal(triton_dist.symm_peer(word, peer).data_ptr(), 3)
    wait_eq(word.data_ptr(), 3)
    assert inbox.tolist() == [7 + (rank + size - 1) % size] * 64, "the copy is not there"


def products(method: str, tiles: Tiles, sizes: tuple[tuple[int, int, int], ...], dtype: torch.dtype = torch.bfloat16) -> None:
    """Calls back to back; the rows are overwritten as soon as a call is queued."""
    rank, size, checks = triton_dist.rank(), triton_dist.world_size(), []
    for call, (rows, columns, depth) in enumerate(sizes):
        a = torch.randn(size * rows, depth, generator=torch.Generator().manual_seed(call)).to(dtype)
        b = torch.randn(depth, columns, generator=torch.Generator().manual_seed(100 + 10 * call + rank)).to(dtype)
        shard = a[rank * rows : (rank + 1) * rows].clone()
        out = ag_gemm(shard, b, method=method, tiles=tiles)
        shard.zero_()
        checks.append((out, a.double() @ b.double()))
    for out, reference in checks:
        if out.numel():
            assert (out.double() - reference).abs().max() / reference.abs().max() < 8e-3, "the product is wrong"


def sums_of_products(operator, method: str, sizes: tuple[tuple[int, int, int], ...], **options) -> None:
    """Calls back to back; A is overwritten as soon as a call is queued."""
    rank, size, checks = triton_dist.rank(), triton_dist.world_size(), []
    for call, (rows, columns, depth) in enumerate(sizes):
        matrices = [torch.randn(size * rows, depth, generator=torch.Generator().manual_seed(10 * call + r)) for r in range(size)]
        weights = [torch.randn(depth, columns, generator=torch.Generator().manual_seed(10 * call + r)) for r in range(size)]
        matrices, weights = [[matrix.bfloat16() for matrix in those] for those in (matrices, weights)]
        a = matrices[rank].clone()
        out = operator(a, weights[rank], method=method, **options)
        a.zero_()
        reference = sum(a.double() @ b.double() for a, b in zip(matrices, weights, strict=True))
        checks.append((out, reference[rank * rows : (rank + 1) * rows] if operator is gemm_rs else reference))
    for out, reference in checks:
        assert (out.double() - reference).abs().max() / reference.abs().max() < 8e-3, "the product is wrong"


def in_pieces(operator, count: int, sizes: tuple[tuple[int, int, int], ...]) -> None:
    sums_of_products(operator, "pipelined", sizes, pieces=count)


def scattered(sizes: tuple[tuple[int, int, int], ...]) -> None:
    sums_of_products(gemm_rs, "fused", sizes, tiles=SCATTERED)


def tutorial() -> None:
    out = producer_consumer.run()
    assert torch.equal(out, producer_consumer.expected(triton_dist.rank(), triton_dist.world_size())), "a tile is wrong"


def profiled() -> None:
    with tempfile.TemporaryDirectory() as folder:
        error, _ = profiler.run(Path(folder) / "trace.json", rows=64, depth=64, columns=64, programs=4)
    assert error < 0.01, "the product is wrong"


def autotuned() -> None:
    os.environ["TRITON_DIST_AUTOTUNE_DIR"] = tempfile.mkdtemp()
    _, right = autotune.run()
    barrier()  # what races with a result has its turn before the result is judged
    triton_dist.synchronize()
    assert right, "a result is wrong"


def torch_symmetric_all_reduces() -> None:
    dist.init_process_group("nccl")
    torch_symmetric.all_reduces(torch.device("cpu"))


@triton_dist.jit
def take_kernel(data, flags, out, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """What came for ``data``, once all words say so."""
    token = dl.wait(flags, WORDS, "sys", "acquire")
    lanes = tl.arange(0, BLOCK)
    tl.store(out + lanes, tl.load(dl.consume_token(data, token) + lanes))


def pushed_ahead() -> None:
    """The kernel that a C program launches, launched by Python."""
    rank, size, count = triton_dist.rank(), triton_dist.world_size(), 1000
    data, flags = triton_dist.symm_zeros((2 * count,), torch.float32), triton_dist.symm_zeros((4,), torch.int32)
    out = torch.zeros(512, device=triton_dist.device())
    data[:count] = rank + 1.0
    aot.push_kernel[(4,)](data, flags, count, BLOCK=256)
    take_kernel[(1,)](data[count:], flags, out, WORDS=4, BLOCK=512)
    assert out.eq((rank - 1) % size + 1).all(), "what was pushed is wrong"
    barrier()


def sent_rows() -> None:
    """Rows that another stream writes, each with its word; and the words of the rank before."""
    rank, size, rows = triton_dist.rank(), triton_dist.world_size(), 2
    source, target = (triton_dist.symm_zeros((rows, inspected.TILE), torch.float32) for _ in range(2))
    ready, arrived = (triton_dist.symm_zeros((rows,), torch.int32) for _ in range(2))
    out = torch.zeros(rows * inspected.TILE, device=triton_dist.device())
    side = triton_dist.Stream()
    with triton_dist.stream(side):
        inspected.send_rows_kernel[(rows,)](source, target, ready, arrived, (rank + 1) % size, inspected.TILE, TILE=inspected.TILE)
    source.fill_(rank + 1.0)
    set_words_kernel[(1,)](ready, rows)
    with triton_dist.stream(side):
        take_kernel[(1,)](target, arrived, out, WORDS=rows, BLOCK=rows * inspected.TILE)
        assert out.eq((rank - 1) % size + 1).all(), "a row is wrong"
    barrier()


@triton_dist.jit
def set_words_kernel(flags, rows):
    for row in range(rows):
        dl.notify(flags + row, dl.rank(), signal=1, sig_op="set", comm_scope="gpu")


def norms_sent() -> None:
    assert extern.run() < 1e-5, "a norm is wrong"


def layers_in_one_kernel(taken: bool) -> None:
    """Two layers that share their buffers, with a sum over the ranks in each and a barrier behind them, run three times."""
    rank, size, generator = triton_dist.rank(), triton_dist.world_size(), torch.Generator().manual_seed(triton_dist.rank())

    def random(*shape: int) -> torch.Tensor:
        return torch.randint(-2, 3, shape, generator=generator).float()

    made = ModelBuilder(rank, size, size, num_sms=3, enable_runtime_scheduler=taken)
    x, weights = random(2, 16), [random(300, 16) for _ in range(2)]
    back = torch.eye(300)[:16].contiguous()
    part = made.create_symm_tensor((2, 300), torch.float32)
    total, state = torch.empty(2, 300), torch.empty(2, 16)
    made.make_linear(x, weights[0], part)
    made.make_allreduce(part, total)
    made.make_linear(total, back, state)
    made.make_linear(state, weights[1], part)
    made.make_barrier_all_intra_node([part])
    made.make_allreduce(part, total)
    made.compile()
    # Nobody waits for its tasks.
    norm = ModelBuilder(num_sms=3, enable_runtime_scheduler=taken)
    norm.make_rms_norm(random(5, 16), random(16), torch.empty(5, 16))
    norm.compile()
    found = []
    for _ in range(3):
        x.copy_(random(2, 16))
        made.run()
        found.append((x.clone(), total.clone()))
        norm.run()
    triton_dist.synchronize()
    gather = require_world("the program").gather
    for given, result in found:
        inner = sum(torch.tensor(part) for part in gather((given @ weights[0].T).tolist()))[:, :16]
        expected = sum(torch.tensor(part) for part in gather((inner @ weights[1].T).tolist()))
        assert torch.equal(result, expected), "the program is wrong"
    made.finalize()


def decodes(taken: bool) -> None:
    """Attention to pages by shares of the keys, run three times with other queries; the mean of the values where all keys are the same."""
    generator = torch.Generator().manual_seed(1)
    made = ModelBuilder(num_sms=6, enable_runtime_scheduler=taken)
    keys, values = torch.ones(32, 16, 1, 16), torch.randint(-8, 9, (32, 16, 1, 16), generator=generator).float()
    tables, lens = torch.arange(32, dtype=torch.int32).view(1, 32), torch.tensor([512], dtype=torch.int32)
    query, out, twice = torch.empty(1, 1, 3, 16), torch.empty(1, 1, 3, 16), torch.empty(1, 1, 3, 16)
    made.make_flash_decode(query, keys, values, tables, lens, out)
    made.make_add(out, out, twice)
    made.compile()
    expected = 2 * values.double().mean((0, 1, 2))
    for _ in range(3):
        query.copy_(torch.randn(query.shape, generator=generator))
        out.fill_(float("nan"))
        made.run()
        triton_dist.synchronize()
        assert (twice.double() - expected).abs().max() < 1e-5, "decoding is wrong"


LOADS = Tiles(m=16, n=16, k=32, blocks=2, tma=False)
DESCRIPTORS = Tiles(m=16, n=32, k=32, blocks=2, blocks_per_wait=1, programs=3, group=2)
SMALL_GPU = (("gpu", GPU("small", capability=90, sm_count=8, max_shared_memory=232_448)),)
ODD, EVEN, NO_COLUMNS = (20, 17, 40), (32, 64, 64), (20, 0, 40)

ALL_GATHER = [Case(gathers, size, ((40, 40, 3000, 40, 3000),)) for size in (2, 3)]
ALL_REDUCE = [Case(sums, size, (method, (40, 40, 3000, 40, 3000))) for method in ("one_shot", "two_shot") for size in (2, 3)]
REDUCE_SCATTER = [Case(sums_of_parts, size, ((40, 40, 3000, 40, 3000),)) for size in (2, 3)]
ALL_TO_ALL = [Case(exchanges, size, ((40, 40, 3000, 40, 3000),)) for size in (2, 3)]
BROADCAST = [Case(broadcasts, size, ((40, 40, 3000, 40, 3000, 3000),)) for size in (2, 3)]
LOW_LATENCY = [Case(flagged, size, ((40, 40, 1000, 40, 1000, 40),)) for size in (2, 3)]
TWO_SHOT = [Case(sums_in_place, size, ((48, 48, 3008, 48, 3008, 40),)) for size in (2, 3)]
TWO_SHOT += [Case(sums, 3, ("two_shot", (40, 40, 3000, 40)))]
BARRIER = [Case(run, size) for run in (barriers, team_barriers) for size in (2, 3)]
NODE_BARRIER = [Case(inline_barriers, 3), Case(node_barriers, 3), Case(node_barriers, 2), Case(world_barriers, 2)]
SIGNALS = [Case(signals, 2)]
LOADED = [
    Case(products, 3, ("fused_kernel", LOADS, (ODD, ODD, ODD)), SMALL_GPU),
    Case(products, 2, ("fused", LOADS, (ODD, NO_COLUMNS, ODD)), SMALL_GPU),
]
AG_GEMM = [
    *LOADED,
    Case(products, 3, ("fused", DESCRIPTORS, (EVEN, EVEN, EVEN)), SMALL_GPU),
    Case(products, 2, ("fused_kernel", DESCRIPTORS, (EVEN, EVEN, EVEN)), SMALL_GPU),
    Case(products, 3, ("pipelined", LOADS, (ODD, ODD, ODD)), SMALL_GPU),
]
SCATTERED = Tiles(m=16, n=32, k=32, programs=3, group=2)
TWO_SIZES = (ODD, ODD, (40, 17, 20), ODD)
GEMM_RS = [Case(sums_of_products, size, (gemm_rs, "direct", TWO_SIZES), SMALL_GPU) for size in (2, 3)]
GEMM_AR = [Case(in_pieces, size, (gemm_ar, count, TWO_SIZES), SMALL_GPU) for size, count in ((2, 3), (3, 2))]
PIECES = [Case(in_pieces, size, (gemm_rs, count, TWO_SIZES), SMALL_GPU) for size in (2, 3) for count in (1, 3)]
GEMM_SUMS = [
    Case(sums_of_products, 3, (gemm_rs, "pipelined", (*TWO_SIZES, (70, 40, 20), ODD)), SMALL_GPU),
    Case(scattered, 3, ((EVEN, EVEN, EVEN),), SMALL_GPU),
    *(Case(sums_of_products, 3, (operator, "split", TWO_SIZES)) for operator in (gemm_rs, gemm_ar)),
    *(Case(sums_of_products, size, (gemm_ar, "two_shot", (*TWO_SIZES, (70, 40, 20), ODD))) for size in (2, 3)),
    *(Case(sums_of_products, 2, (operator, "small", TWO_SIZES)) for operator in (gemm_rs, gemm_ar)),
]
MEGA = [Case(layers_in_one_kernel, size, (taken,)) for size, taken in ((2, False), (3, True))]
DECODING = [Case(decodes, 1, (taken,)) for taken in (False, True)]
TUTORIAL = [Case(tutorial, size) for size in (2, 4)]
SIMT = [Case(simt.run, 2)]
PROFILED = [Case(profiled, size) for size in (2, 3)]
AUTOTUNE = [Case(autotuned, 2), Case(autotuned, 3)]
AHEAD = [Case(pushed_ahead, size) for size in (2, 3)]
INSPECTED = [Case(sent_rows, size) for size in (2, 3)]
EXTERN = [Case(norms_sent, size) for size in (2, 3)]
TORCH_SYMMETRIC = [Case(torch_symmetric_all_reduces, size) for size in (2, 3)]
