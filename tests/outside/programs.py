"""Programs of Triton-distributed that nobody here wrote, as they are run on the simulator: by path in its repository, never copied."""

from __future__ import annotations

from dataclasses import dataclass

SOURCE = "https://github.com/ByteDance-Seed/Triton-distributed"
_TESTS = "python/triton_dist/test"


@dataclass(frozen=True)
class Program:
    """path: in the repository. ranks: for ``triton-dist run``, one run each, on so many ``nodes``.

    arguments: the program's own. options: more of those of the command.
    fault: the error that its known fault has to be reported as. note: what the table says beside the outcome.
    """

    path: str
    ranks: tuple[int, ...] = (2, 4)
    nodes: int = 1
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ("--perf-iters", "2")
    fault: str = ""
    note: str = ""


PROGRAMS = (
    Program("tutorials/01-distributed-notify-wait.py"),
    Program(f"{_TESTS}/nvidia/test_notify.py"),
    Program(f"{_TESTS}/nvidia/test_ring_put.py"),
    Program(f"{_TESTS}/nvidia/test_all_gather.py"),
    Program(f"{_TESTS}/common/test_simt.py", (1,)),
    Program(f"{_TESTS}/common/test_simt_vec_add.py", (1,), note="58,720,256 elements, each by a thread of its own"),
    Program(f"{_TESTS}/common/test_language_extra.py", (1,), note="took over 240 s in another run, on a busy machine"),
    *(
        Program(
            f"{_TESTS}/nvidia/test_distributed_wait.py",
            (1,),
            arguments=("--case", case),
            note="waits without a world, which faults on a GPU",
        )
        for case in ("correctness", "correctness_tma", "correctness_tma_multi_barrier", "block_ptr_wait")
    ),
    Program(f"{_TESTS}/nvidia/test_team_split.py", (4,)),
    Program(f"{_TESTS}/nvidia/test_nvshmem_init.py", note="wants symmetric memory of half of the ranks; here it spans all"),
    Program(f"{_TESTS}/nvidia/test_language_extra.py", (1,), note="looks for instructions in PTX, of which the simulator has none"),
    Program("tutorials/02-intra-node-allgather.py"),
    Program(
        "tutorials/03-inter-node-allgather.py", fault="OutOfBoundsError", note="its signal buffer has one element and is indexed by rank"
    ),
    Program("tutorials/03-inter-node-allgather.py", (4,), 2, fault="OutOfBoundsError", note="its signal buffer has one element"),
    Program("tutorials/04-deepseek-infer-all2all.py"),
    Program("tutorials/05-intra-node-reduce-scatter.py"),
    Program("tutorials/06-inter-node-reduce-scatter.py"),
    Program(
        "tutorials/06-inter-node-reduce-scatter.py",
        (4,),
        2,
        fault="IndexError",
        note="takes entry `rank` of a list of the node's tensors, so it can't run on a second node",
    ),
    Program(
        f"{_TESTS}/nvidia/test_nvshmem_api.py",
        fault="SimulationError",
        note="a block barrier (line 525) that only the first warp reaches; with it out of the condition all checks pass",
    ),
    Program(f"{_TESTS}/nvidia/test_fast_allgather.py", arguments=("--iters", "5", "--warmup_iters", "1", "--maxbytes", "65536")),
    *(
        Program(
            f"{_TESTS}/nvidia/test_allreduce.py",
            arguments=(
                "--method",
                method,
                "--stress",
                "--iters",
                "1",
                "--verify_shapes",
                "4",
                "--verify_hang",
                "6",
                "--max_nbytes",
                "65536",
            ),
        )
        for method in ("one_shot", "two_shot")
    ),
    Program(f"{_TESTS}/nvidia/test_all_to_all.py", note="prints its times by tabulate, which has to be installed"),
)
