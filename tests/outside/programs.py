"""Programs that nobody here wrote, as they are run on the simulator: by path in their repository, never copied."""

from __future__ import annotations

from dataclasses import dataclass

SOURCES = {
    "Triton-distributed": "https://github.com/ByteDance-Seed/Triton-distributed",
    "kraken": "https://github.com/meta-pytorch/kraken",
    "symm-mem-recipes": "https://github.com/yifuwang/symm-mem-recipes",
    "torchtitan": "https://github.com/pytorch/torchtitan at 6e06a49, the last commit with these kernels",
    "helion": "https://github.com/pytorch/helion at ef091f4; Helion makes the Triton kernels. It wants filecheck, psutil and scikit-learn",
    "Megatron-LM": "https://github.com/NVIDIA/Megatron-LM at d98e8a6",
    "pytorch": "https://github.com/pytorch/pytorch: test_symmetric_memory.py at d4e76bf, and the first test_nvshmem_triton.py that has "
    "test_triton_get with nbi. They want expecttest",
}
"""Where each repository is."""

CASES, SHAPES, RECIPES = "cases.py", "kraken_shapes.py", "recipes.py"
TITAN, HELION, MEGATRON = "titan_all_to_all.py", "helion_shapes.py", "megatron_collectives.py"
_TESTS = "python/triton_dist/test"
_MEGA, MEGA_OPS = "python/triton_dist/mega_triton_kernel/test/ops", "mega_ops.py"


@dataclass(frozen=True)
class Program:
    """path: in the repository. ranks: for ``triton-dist run``, one run each, on so many ``nodes``.

    arguments: the program's own. options: more of those of the command.
    fault: the error that its known fault has to be reported as. note: what the table says beside the outcome.
    source: the repository. driver: the script of this folder that is run, with the path and the arguments. checked: whether the table has
    what ``triton-dist check`` says, too, on the first number of ranks.
    """

    path: str
    ranks: tuple[int, ...] = (2, 4)
    nodes: int = 1
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ("--perf-iters", "2")
    fault: str = ""
    note: str = ""
    source: str = "Triton-distributed"
    driver: str = ""
    checked: bool = False


_HALF = (
    "there NVSHMEM's world is the group that it is started with, half of the ranks, with numbers from 0; here a process is in one world, "
    "whose numbers, address map and heap are all ranks', and half of them are a team (`make_team`, `team_my_pe`)"
)
_SPELLING = (
    "looks into the PTX, of which the simulator has none, for `st.global.relaxed.gpu.b8` and the like; ours is `st.relaxed.gpu.global.b8`, "
    "the order of PTX's grammar, and the same instruction"
)
_FLASHINFER = (
    "with flashinfer's rmsnorm and rotary embedding by torch; those beside it compare bit by bit with cuBLAS, flashinfer or a kernel of "
    "their own"
)
_RELAXED = "the meeting behind the product signals relaxed, so that nothing orders a rank's stores before its peers' loads"

_RELAXED_BEGIN = "the barrier before its reads is relaxed, so that nothing orders them behind the peers' stores"

PROGRAMS = (
    Program("tutorials/01-distributed-notify-wait.py"),
    Program(f"{_TESTS}/nvidia/test_notify.py"),
    Program(f"{_TESTS}/nvidia/test_ring_put.py"),
    Program(f"{_MEGA}/test_add.py", ranks=(1,), options=()),
    Program(f"{_MEGA}/test_page_attn.py", ranks=(1,), options=(), driver=MEGA_OPS, note=_FLASHINFER),
    Program(f"{_MEGA}/test_attn_layer.py", ranks=(1,), options=(), driver=MEGA_OPS, note=_FLASHINFER),
    Program(f"{_TESTS}/nvidia/test_all_gather.py"),
    Program(f"{_TESTS}/common/test_simt.py", (1,)),
    Program(f"{_TESTS}/common/test_simt_vec_add.py", (1,), note="58,720,256 elements, each by a thread of its own"),
    Program(f"{_TESTS}/common/test_language_extra.py", (1,), note="took over 240 s in another run, on a busy machine"),
    *(
        Program(
            f"{_TESTS}/nvidia/test_distributed_wait.py",
            (1,),
            arguments=("--case", case),
            note="waits without a world: of one rank, then",
        )
        for case in ("correctness", "correctness_tma", "correctness_tma_multi_barrier", "block_ptr_wait")
    ),
    Program(f"{_TESTS}/nvidia/test_team_split.py", (4,)),
    Program(f"{_TESTS}/nvidia/test_nvshmem_init.py", note=_HALF),
    Program(f"{_TESTS}/nvidia/test_language_extra.py", (1,), note=_SPELLING),
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
    *(
        Program(path, (2, 4, 8), arguments=arguments, options=(), note=note, source="kraken", driver=CASES, checked=True)
        for path, arguments, note in (
            ("test/test_ptx_utils.py", (), ""),
            ("test/test_allreduce.py", (), ""),
            ("test/test_allreduce_bias.py", (), ""),
            ("test/test_allreduce_bias_rms_norm.py", (), ""),
            ("test/test_gemm_allreduce.py", (), _RELAXED),
            ("test/test_allgather.py", (), ""),
            ("test/test_gemm_reduce_scatter.py", ("rank_specific",), _RELAXED),
        )
    ),
    Program(
        "kraken/fused/all_gather_matmul.py",
        (2, 4, 8),
        arguments=("all_gather_matmul",),
        options=(),
        note="at small shapes; its own test takes 4096 x 6656 x 16384",
        source="kraken",
        driver=SHAPES,
        checked=True,
    ),
    Program(
        "kraken/fused/all_gather_matmul.py",
        (2,),
        arguments=("all_gather_matmul_of_two_splits",),
        options=(),
        fault="AssertionError",
        note="with splits_per_rank=2 the rows of the rank's own second split are read where its first one lies",
        source="kraken",
        driver=SHAPES,
    ),
    Program(
        "kraken/fused/gemm_reduce_scatter_ce_persistent.py",
        (2,),
        arguments=("gemm_reduce_scatter_ce_persistent",),
        options=(),
        fault="DeadlockError",
        note="a stream waits for words of a tensor that was freed when the function returned; the checks name that, a signal behind a TMA "
        "store that may be under way, and a missing block barrier",
        source="kraken",
        driver=SHAPES,
        checked=True,
    ),
    *(
        Program(f"symm_mem_recipes/{name}.py", (2, 4, 8), options=(), source="symm-mem-recipes", driver=RECIPES, checked=True)
        for name in ("triton_barrier", "triton_one_shot_all_reduce")
    ),
    Program(
        "torchtitan/experiments/deepseek_v3/symm_mem_recipes/triton_on_device_all_to_all_v.py",
        (2, 4, 8),
        options=(),
        note=f"forward and backward; {_RELAXED_BEGIN}",
        source="torchtitan",
        driver=TITAN,
        checked=True,
    ),
    *(
        Program(path, (2, 4, 8), arguments=arguments, options=options, note=note, source="helion", driver=CASES, checked=True)
        for path, arguments, options, note in (
            ("test/test_examples_dist.py", ("allreduce_bias_rmsnorm",), (), "one shot and two shots"),
            ("test/test_examples_dist.py", ("matmul_reduce_scatter_kernel",), (), ""),
            (
                "test/test_distributed.py",
                ("test_allreduce_autotuner_fixed",),
                (),
                "torch.bfloat16; no barrier stands between the peers' stores and its reads",
            ),
            ("test/test_distributed.py", ("fp8_matmul_reduce_scatter",), (), ""),
            (
                "test/test_remote_copy.py",
                ("TestRemoteCopyGPU.test_ring_all_gather",),
                (),
                "asynchronous copies by NVSHMEM; its barrier's signal is sent by every thread, 128 times, and taken once",
            ),
        )
    ),
    *(
        Program(
            "test/test_examples_dist.py",
            ranks,
            arguments=("fp8_scaled_all_gather_matmul",),
            options=("--heap-size", str(5 << 30)),
            fault=fault,
            note=note,
            source="helion",
            driver=CASES,
            checked=True,
        )
        for ranks, fault, note in (
            (
                (2, 4),
                "",
                "asks for a pad of 1 GiB; the barriers of its copies are commented out, so that a shard may be read before it is there",
            ),
            (
                (8,),
                "AssertionError",
                "a tile of 128 rows lies over the shards of two ranks, of 64 rows each, and waits for the first one only",
            ),
        )
    ),
    Program(
        "test/test_remote_copy.py",
        (4,),
        arguments=("TestRemoteCopyGPU",),
        options=(),
        note="11 tests, some of them for 4 ranks: rank 3 lets rank 0 go on",
        source="helion",
        driver=CASES,
    ),
    Program(
        "examples/distributed/all_gather_matmul.py",
        (2, 4, 8),
        options=(),
        note="at small shapes; its own test takes 4096 x 6656 x 16384",
        source="helion",
        driver=HELION,
        checked=True,
    ),
    Program(
        "test/test_examples_dist.py",
        (2,),
        arguments=("TestExamplesDist.test_all_reduce",),
        options=(),
        note="its example compiles C++ against CUDA's headers when it is imported, which are not here",
        source="helion",
        driver=CASES,
    ),
    *(
        Program(
            "megatron/core/inference/communication/torch_symm_triton/collectives.py",
            (2, 4, 8),
            arguments=(name,),
            options=(),
            note=f"by multimem instructions, on simulated multicast{'; ' + _RELAXED_BEGIN if 'reduce' in name else ''}",
            source="Megatron-LM",
            driver=MEGATRON,
            checked=True,
        )
        for name in (
            "all_gather",
            "reduce_scatter_then_all_gather",
            "all_gather_of_three",
            "reduce_scatter_add_norm_all_gather",
            "all_gather_v_then_reduce_scatter_v",
        )
    ),
    *(
        Program(
            f"test/distributed/{file}.py",
            ranks,
            arguments=arguments,
            options=options,
            note=note,
            source="pytorch",
            driver=CASES,
            checked=checked,
        )
        for file, ranks, arguments, options, note, checked in (
            (
                "test_nvshmem_triton",
                (2,),
                ("not:prod_reduce",),
                (),
                "30 tests; those of the product shape what they expect for a multiple of 4 ranks, and fail by themselves on 2. In some, "
                "nothing orders a rank's fills before its peer's puts, and signals stay set",
                True,
            ),
            ("test_nvshmem_triton", (4, 8), (), (), "all 37 tests", False),
            (
                "test_symmetric_memory",
                (2, 4, 8),
                ("SymmetricMemoryTest", "not:nvlink_connectivity"),
                ("--heap-size", str(3 << 30)),
                "11 tests; one allocates 2 GiB. Left out: the one of the NVLinks that NVML counts",
                True,
            ),
            (
                "test_symmetric_memory",
                (2, 4, 8),
                ("AsyncTPTest", "not:matmul_native", "not:multimem_all_gather_matmul", "not:all_gather_scaled_matmul"),
                (),
                "13 tests. Left out: 5 that look for a GPU's kernels in the profile, and 6 of fused_all_gather_scaled_matmul, which ask "
                "for the last bits of torch's product of 8-bit floats",
                True,
            ),
            (
                "test_symmetric_memory",
                (4, 8),
                ("SymmMemCollectiveTest", "not:test_multimem_all_reduce"),
                (),
                "31 tests, on simulated multicast. Left out: 18 that take new memory to be zero; the simulator's is filled with NaN",
                True,
            ),
            (
                "test_symmetric_memory",
                (2, 4, 8),
                ("SymmMemEmptySetDeviceTest", "not:persistent_set_device_True"),
                (),
                "3 tests. Left out: a fourth, which takes memory of the third's alloc_id; here one process runs both, and the last "
                "barrier's handle keeps that memory",
                True,
            ),
            (
                "test_symmetric_memory",
                (2,),
                ("SymmMemSingleProcTest.test_stream_write_value32",),
                (),
                "the other test of the class asks memset32 for the words of torch's messages; ours are others. Of SymmMemNegativeTest none "
                "is run: its tests wait for timeouts on the GPU and end the process",
                False,
            ),
        )
    ),
)
