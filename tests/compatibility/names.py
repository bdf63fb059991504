"""The documented names, by section: where they are, and what each machine has for them. ``page.py`` makes the table of docs from it."""

from __future__ import annotations

from dataclasses import dataclass

YES, NO, SAME, LINKED, AS_WITHOUT = "yes", "no", "host", "linked", "as without"
"""What a machine has for a section: an own lowering or path, none, or nothing to do since the name is the host's. With NVSHMEM, whether the
names become its functions or are as they are without it."""


@dataclass(frozen=True)
class Section:
    """Names of one module.

    simulator, gpus, nvshmem, gfx942: YES, NO, SAME, and for nvshmem LINKED or AS_WITHOUT: on simulated ranks, on GPUs of one host over our
    heap, with NVSHMEM's device library, and compiled for gfx942. tests: files, of which one has to use each name;
    members of a class are written ``Class.name``.
    """

    title: str
    module: str
    names: str
    tests: tuple[str, ...]
    simulator: str = YES
    gpus: str = YES
    nvshmem: str = AS_WITHOUT
    gfx942: str = YES

    @property
    def listed(self) -> list[str]:
        """The names, one by one."""
        return self.names.split()


_DEVICE_TESTS = (
    "tests/sim/test_primitives.py",
    "tests/sim/test_threads.py",
    "tests/sim/test_regions.py",
    "tests/sim/test_vectors.py",
    "tests/primitives/test_usage.py",
    "tests/primitives/test_instructions.py",
)
_SHMEM_TESTS = (
    "tests/sim/test_shmem.py",
    "tests/primitives/test_shmem_compiles.py",
    "tests/sim/test_primitives.py",
    "tests/compatibility/test_names.py",
)
_HOST_TESTS = ("tests/test_utils.py", "tests/test_script_helpers.py", "tests/compatibility/test_names.py")
_HOST = {"nvshmem": SAME, "gfx942": SAME}

SECTIONS = (
    Section("Signals and peers", "triton_dist.language", "wait consume_token rank num_ranks symm_at notify", _DEVICE_TESTS),
    Section(
        "SIMT regions and vectors",
        "triton_dist.language",
        "simt_exec_region vector vector.__init__ vector.__getitem__ vector.__setitem__ vector.__add__ vector.__sub__ vector.__mul__ "
        "vector.recast vector.to make_vector zeros_vector extract insert",
        _DEVICE_TESTS,
    ),
    Section("Functions of a bitcode library", "triton_dist.language", "extern_call", ("tests/primitives/extern_functions.py",)),
    Section(
        "Threads and words of memory",
        "triton_dist.language.extra.language_extra",
        "tid atomic_cas atomic_add __syncthreads ld st threads_per_warp num_threads num_warps",
        _DEVICE_TESTS,
    ),
    Section(
        "Vectors of memory",
        "triton_dist.language.extra.language_extra",
        "ld_vector st_vector pack unpack",
        _DEVICE_TESTS,
    ),
    Section(
        "Several words at once",
        "triton_dist.language.extra.language_extra",
        "load_v4_u32 load_v4_s32 load_v4_b32 load_v2_b64 st_v4_u32 st_v4_b32 st_v2_u32",
        ("tests/sim/test_words.py",),
    ),
    Section(
        "Multicast",
        "triton_dist.language.extra.language_extra",
        "multimem_st_b32 multimem_st_b64 multimem_st_p_b32 multimem_st_v2 multimem_st_v4 multimem_ld_reduce_v4",
        ("tests/sim/test_words.py",),
        gfx942=NO,
    ),
    Section(
        "SHMEM: who and where",
        "triton_dist.language.extra.libshmem_device",
        "my_pe n_pes team_my_pe team_n_pes remote_ptr remote_mc_ptr",
        _SHMEM_TESTS,
        nvshmem=LINKED,
    ),
    Section(
        "SHMEM: order and barriers",
        "triton_dist.language.extra.libshmem_device",
        "barrier_all barrier_all_block barrier_all_warp barrier sync_all quiet fence",
        _SHMEM_TESTS,
        nvshmem=LINKED,
    ),
    Section(
        "SHMEM: gets and puts",
        "triton_dist.language.extra.libshmem_device",
        "getmem getmem_warp getmem_block getmem_nbi getmem_nbi_warp getmem_nbi_block putmem putmem_warp putmem_block putmem_nbi "
        "putmem_nbi_warp putmem_nbi_block",
        _SHMEM_TESTS,
        nvshmem=LINKED,
    ),
    Section(
        "SHMEM: signals and collectives",
        "triton_dist.language.extra.libshmem_device",
        "putmem_signal_block putmem_signal_nbi_block signal_op signal_wait_until broadcastmem_block fcollectmem_block",
        _SHMEM_TESTS,
        nvshmem=LINKED,
    ),
    Section(
        "SHMEM: constants",
        "triton_dist.language.extra.libshmem_device",
        "NVSHMEM_CMP_EQ NVSHMEM_CMP_NE NVSHMEM_CMP_GT NVSHMEM_CMP_LE NVSHMEM_CMP_LT NVSHMEM_CMP_GE NVSHMEM_SIGNAL_SET NVSHMEM_SIGNAL_ADD "
        "NVSHMEM_TEAM_WORLD NVSHMEMX_TEAM_NODE",
        _SHMEM_TESTS,
    ),
    Section(
        "Beginning and end",
        "triton_dist.utils",
        "initialize_distributed init_nvshmem_by_torch_process_group init_rocshmem_by_torch_process_group finalize_distributed "
        "is_shmem_initialized",
        _HOST_TESTS,
        **_HOST,
    ),
    Section(
        "Symmetric tensors and barriers",
        "triton_dist.utils",
        "nvshmem_create_tensor nvshmem_create_tensors nvshmem_free_tensor_sync nvshmem_barrier_all_on_stream "
        "rocshmem_barrier_all_on_stream",
        _HOST_TESTS,
        **_HOST,
    ),
    Section(
        "The GPU",
        "triton_dist.utils",
        "is_cuda is_hip has_tma is_nvshmem_multimem_supported get_numa_node get_max_gpu_clock_rate_in_khz "
        "get_current_gpu_clock_rate_in_khz get_device_max_shared_memory_size has_fullmesh_nvlink supports_p2p_native_atomic",
        ("tests/test_device_info.py", "tests/test_utils.py"),
        **_HOST,
    ),
    Section(
        "Printing, random numbers, environment",
        "triton_dist.utils",
        "dist_print rand_tensor init_seed get_bool_env get_int_env NVSHMEM_SIGNAL_DTYPE",
        _HOST_TESTS,
        **_HOST,
    ),
    Section(
        "Names that scripts import beside the documented ones",
        "triton_dist.utils",
        "CUDA_CHECK cuda cudart sleep_async generate_data is_fp8_dtype requires requires_p2p_native_atomic with_torch_deterministic "
        "launch_cooperative_grid_options support_launch_cooperative_grid has_nvshmemi_bc_built wait_until_max_gpu_clock_or_warning "
        "cuda_occupancy_max_activate_blocks_per_multiprocessor get_triton_dist_world get_triton_dist_local_world_size",
        ("tests/test_script_helpers.py",),
        **_HOST,
    ),
    Section(
        "Timing and profiles",
        "triton_dist.profiler_utils",
        "perf_func perf_func_with_l2_reset group_profile get_torch_prof_ctx",
        ("tests/test_profiler_utils.py",),
        **_HOST,
    ),
    Section(
        "Comparisons",
        "triton_dist.test.utils",
        "assert_allclose bitwise_equal assert_bitwise_equal",
        ("tests/test_test_utils.py",),
        **_HOST,
    ),
    Section(
        "Compilation ahead of time",
        "triton_dist.tools",
        "make_ast_source kernel_name_suffix materialize_c_params dump_c_code aot_compile_spaces",
        ("tests/tools/compile_aot/test_generate.py",),
        **_HOST,
    ),
    Section(
        "Profiler inside kernels",
        "triton_dist.tools.profiler",
        "Profiler alloc_profiler_buffer reset_profiler_buffer ProfilerBuffer export_to_perfetto_trace parse_to_tracks",
        ("tests/tools/profiler/kernels.py", "tests/tools/profiler/test_records.py", "tests/tools/profiler/test_trace.py"),
        **_HOST,
    ),
    Section(
        "Tools",
        "triton_dist.tools",
        "apply_triton340_inductor_patch",
        ("tests/tools/test_inductor.py",),
        **_HOST,
    ),
    Section(
        "torch's symmetric library",
        "triton_dist.dialects.torch_symm",
        "requires_torch_symm symm_all_reduce BACKEND_DEFAULT BACKEND_NCCL BACKEND_NVSHMEM REDUCE_OP_SUM DTYPE_FLOAT32 SymmContext "
        "NCCLSymmContext NVSHMEMSymmContext",
        ("tests/dialects/bodies.py", "tests/dialects/test_torch_symm.py"),
        nvshmem=LINKED,
    ),
    Section(
        "Fused models",
        "triton_dist.mega_triton_kernel",
        "ModelBuilder ModelBuilder.make_linear ModelBuilder.make_fc1 ModelBuilder.make_fc2 ModelBuilder.make_qkv_proj "
        "ModelBuilder.make_o_proj ModelBuilder.make_rms_norm ModelBuilder.make_add ModelBuilder.make_silu_mul_up "
        "ModelBuilder.make_flash_attn ModelBuilder.make_qkv_pack_flash_attn ModelBuilder.make_flash_decode "
        "ModelBuilder.make_qk_norm_rope_update_kvcache ModelBuilder.make_qkv_pack_qk_norm_rope_split_v "
        "ModelBuilder.make_prefetch ModelBuilder.make_allreduce ModelBuilder.make_barrier_all_intra_node "
        "ModelBuilder.create_symm_tensor ModelBuilder.compile ModelBuilder.run ModelBuilder.dump_trace "
        "ModelBuilder.get_sm_activity ModelBuilder.get_memory_size ModelBuilder.reset ModelBuilder.finalize",
        (
            "tests/mega_triton_kernel/test_tasks.py",
            "tests/mega_triton_kernel/test_builder.py",
            "tests/mega_triton_kernel/test_ranks.py",
        ),
    ),
)
"""Every name of the API page, and more."""

NOTES = {
    "a": "No machine with multicast memory was at hand, and the heap maps none, so `remote_mc_ptr` is NULL there. The simulator has it.",
    "b": "gfx942 has no multicast; a kernel that uses the name is refused by name when it is compiled.",
    "c": "Runs on the host, and needs no GPU.",
    "d": "Host code lays the struct out, on any machine; a test compares it with the C++. Kernels read it by the functions above.",
    "e": "By the stubs that `build_extern` writes, which call it ([compile_tools_program.py](../tests/gpu/compile_tools_program.py)).",
    "f": "False where it is asked: there is no multicast memory (see a).",
}
"""Why a cell says something else than that the name works there."""

EXCEPTIONS: dict[str, dict[str, str]] = {
    "my_pe": {"nvshmem": "as without"},
    "n_pes": {"nvshmem": "as without"},
    "remote_ptr": {"nvshmem": "as without"},
    "remote_mc_ptr": {"gpus": "NULL [a]"},
    "is_nvshmem_multimem_supported": {"gpus": "program [f]"},
    "extern_call": {"gpus": "program [e]"},
    "NVSHMEMSymmContext": {"gpus": "host [d]"},
    **{
        name: {"gpus": "compiled [a]", "gfx942": "no [b]"}
        for name in ["multimem_st_b32", "multimem_st_b64", "multimem_st_p_b32", "multimem_st_v2", "multimem_st_v4", "multimem_ld_reduce_v4"]
    },
    **{name: {"gpus": "host [c]"} for name in ["make_ast_source", "kernel_name_suffix", "materialize_c_params", "dump_c_code"]},
}
"""Where a name differs from its section: column and text."""
