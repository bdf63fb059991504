"""Collectives beside NCCL and the all-reduces of torch's symmetric memory, over sizes from 1 KiB to 1 GiB.

``torchrun --nproc-per-node 4 benchmarks/collectives.py --json out.json --budget 500``; ``--dry-run`` needs no GPU and no launcher.

bytes counts as in NCCL's benchmarks: the longer of a rank's input and output. A collective that can work in place does so in all methods
that offer it. torch's all-reduces read symmetric memory: in "all_reduce" an ordinary tensor is copied there in the call, in
"all_reduce_symmetric" all but NCCL's work on a symmetric tensor that nobody has to fill, and torch's one-shot form returns a new one.
Repeated in place, an all-reduce multiplies by the number of ranks each time: the data begin small, and the check counts the calls.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import os
from collections.abc import Iterator, Sequence

import torch
import torch.distributed._symmetric_memory  # defines torch.ops.symm_mem
from collective_table import COLLECTIVES, Call, Collective, Make, our_methods, our_operator, ours
from harness.correctness import relative_error, sample_rows, tolerance_of
from harness.link import transfer_us
from harness.machine import Machine, run_on
from harness.results import MethodResult
from harness.run import LINK_BYTES, Case, add_arguments, run_cases
from harness.timing import Method

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
"""Types with eight bits of exponent, see ``SMALL``."""
SIZES = (*(1 << bits for bits in range(10, 31, 2)), 8 << 10, 128 << 10)
SMALL, GROWTH_BITS = 2.0**-100, 220
"""The data's scale, and how many times it can double: in the calls of one span."""
SAMPLED_PER_SHARE = 256
MOST_BYTES = {"ours:ll": 4 << 20, "ours:one_shot": 64 << 20, "torch-one-shot": 64 << 20}
"""Above this a method is not run: it moves all of the data to every rank, and takes ever more memory."""
STAGED = {"all_reduce": 6, "all_reduce_symmetric": 2, "all_gather": 2}
"""Times the size that the methods of a collective keep in the symmetric heap; of those not named: 4."""


def method_names(collective: str) -> list[str]:
    """All methods of a collective that this version has, ours first."""
    return ["ours", *(f"ours:{name}" for name in our_methods(collective)), *COLLECTIVES[collective].peers]


def kind_of(name: str) -> str:
    """See ``MethodResult.kind``."""
    return "ours" if name == "ours" else "variant" if name.startswith("ours:") else "peer"


def why_not(name: str, nbytes: int) -> str:
    """Why a method is not run on so many bytes; empty if it is."""
    if nbytes > MOST_BYTES.get(name, nbytes):
        return f"not run above {MOST_BYTES[name] >> 20} MiB"
    return ""


def random_data(machine: Machine, count: int, dtype: torch.dtype, seed: int, rank: int) -> torch.Tensor:
    """A rank's input: small normal random numbers, the same wherever they are made."""
    generator = torch.Generator(machine.device).manual_seed(seed + rank)
    return torch.randn(count, dtype=dtype, device=machine.device, generator=generator).mul_(SMALL)


def expected_at(machine: Machine, collective: Collective, share: int, positions: list[int], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """The result of one call at some positions of this rank's output, in fp64."""
    place = torch.tensor(positions, device=machine.device)
    total = torch.zeros(len(positions), dtype=torch.float64, device=machine.device)
    count = share if collective.input_parts else share * machine.world_size
    for source in range(machine.world_size):
        taken = collective.source(place, source, machine.rank, share)
        data = random_data(machine, count, dtype, seed, source)
        total += torch.where(taken >= 0, data[taken.clamp_min(0)].double(), 0.0)
    return total


@contextlib.contextmanager
def inputs_and_methods(
    machine: Machine, name: str, share: int, names: Sequence[str], dtype: torch.dtype, seed: int
) -> Iterator[list[Method]]:
    """The methods called ``names`` on shares of ``share`` elements. Every rank calls it."""
    collective, ranks = COLLECTIVES[name], machine.world_size
    source = random_data(machine, share if collective.input_parts else share * ranks, dtype, seed, machine.rank)
    shares = 1 if collective.output_parts else ranks
    out = torch.empty(share * shares, dtype=dtype, device=machine.device)
    sampled = sample_rows(share, shares, SAMPLED_PER_SHARE, seed)
    expected = expected_at(machine, collective, share, sampled, dtype, seed)
    grows = collective.reduces and collective.in_place

    def method(method_name: str, make: Make) -> Method:
        call: Call = make(out if collective.in_place else source, out)
        # What the call overwrites its own input in, if it does.
        buffer = getattr(call, "buffer", out if collective.in_place else None)

        def error(result: torch.Tensor, turn: int) -> float:
            calls = turn if grows and buffer is not None else 0
            # Each call rounds once more.
            return relative_error(result.view(-1), sampled, expected * float(ranks) ** calls) / (calls + 1)

        return Method(
            method_name,
            kind_of(method_name),
            lambda turn: call(),
            error,
            tolerance_of(dtype) if collective.reduces else 0.0,
            () if buffer is not None else (out,),
            None if buffer is None else lambda: buffer.copy_(source),
        )

    makes: dict[str, Make] = {
        "ours": ours(name, None),
        **{f"ours:{way}": ours(name, way) for way in our_methods(name)},
        **collective.peers,
    }
    if collective.in_place:
        out.copy_(source)
    yield [method(method_name, makes[method_name]) for method_name in names]
    machine.align(ahead=False)
    machine.synchronize()


def bound_of(nbytes: int, results: Sequence[MethodResult], link: dict[str, float], collective: Collective, ranks: int) -> dict:
    """What each rank has to receive, through the link at the measured rate."""
    return {"link": transfer_us(link, nbytes * collective.traffic(ranks))} if ranks > 1 else {}


def make_cases(machine: Machine, arguments: argparse.Namespace) -> Iterator[Case]:
    """All cases, collective by collective, from small to large."""
    dtype, ranks = DTYPES[arguments.dtype], machine.world_size
    for name in arguments.collectives:
        collective = COLLECTIVES[name]
        for share in dict.fromkeys(-(-size // (dtype.itemsize * ranks)) for size in arguments.bytes):
            nbytes = share * ranks * dtype.itemsize
            wanted = [method for method in method_names(name) if not arguments.methods or method in arguments.methods]
            reasons = {method: why_not(method, nbytes) for method in wanted}
            if machine.rank == 0:
                for method, reason in reasons.items():
                    if reason:
                        print(f"{name} {nbytes} bytes: {method} is skipped: {reason}", flush=True)
            names = [method for method, reason in reasons.items() if not reason]
            yield Case(
                name,
                {"bytes": nbytes},
                arguments.dtype,
                functools.partial(inputs_and_methods, name=name, share=share, names=names, dtype=dtype, seed=arguments.seed),
                functools.partial(bound_of, nbytes, collective=collective, ranks=ranks),
                most_inner=min(100, int(GROWTH_BITS / math.log2(max(2, ranks)))),
            )


def heap_size(arguments: argparse.Namespace) -> int:
    """Bytes of each rank's heap: our operators keep the staging memory of every size that they have seen."""
    if arguments.heap_gib is not None:
        return int(arguments.heap_gib * 2**30)
    staged = sum(STAGED.get(name, 4) for name in arguments.collectives)
    return staged * sum(arguments.bytes) + 2 * LINK_BYTES + (512 << 20)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    there = [name for name in COLLECTIVES if our_operator(name) is not None]
    parser.add_argument("--collectives", nargs="+", choices=there, default=there, help="default: all that this version has")
    parser.add_argument("--bytes", nargs="+", type=int, help="sizes; default 1 KiB to 1 GiB (in a dry run: 1000 and 8192)")
    parser.add_argument("--max-bytes", type=int, default=1 << 30, help="leave out larger sizes (default %(default)s)")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    arguments = parser.parse_args(words)
    sizes = arguments.bytes or ([1000, 8192] if arguments.dry_run else sorted(SIZES))
    arguments.bytes = [size for size in sizes if size <= arguments.max_bytes]
    if min(sizes) < 1 or not arguments.bytes:
        parser.error(f"--bytes {' '.join(map(str, sizes))} --max-bytes {arguments.max_bytes}: no size of at least 1 is left")
    known = {method for name in arguments.collectives for method in method_names(name)}
    unknown = set(arguments.methods or ()) - known
    if unknown:
        parser.error(f"--methods {' '.join(sorted(unknown))}: not one of {' '.join(sorted(known))}")
    return arguments


def fits(arguments: argparse.Namespace) -> None:
    """Ends the program with what to do where the heap and the methods' own buffers do not fit into the GPU's memory."""
    if arguments.dry_run or not torch.cuda.is_available():
        return
    free, _ = torch.cuda.mem_get_info(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    # Input, output, the buffers of the peers, and what checks need for a while.
    needed = heap_size(arguments) + 10 * max(arguments.bytes)
    if needed > free:
        raise SystemExit(
            f"{needed / 2**30:.1f} GiB would be needed and {free / 2**30:.1f} GiB are free: pass --max-bytes {max(arguments.bytes) // 4}"
        )


def main(words: Sequence[str] | None = None) -> None:
    arguments = parse(words)
    fits(arguments)

    def act(machine: Machine) -> None:
        run_cases(machine, "collectives", make_cases(machine, arguments), arguments)

    run_on(
        act, dry_ranks=arguments.dry_ranks if arguments.dry_run else None, heap_size=heap_size(arguments), timeout_s=arguments.step_limit
    )


if __name__ == "__main__":
    main()
