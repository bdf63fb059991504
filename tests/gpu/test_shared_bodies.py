"""Every test of primitives, streams and operators that takes ``world``, on GPUs: the same functions with the ``world`` of this folder."""

from __future__ import annotations

import importlib
import inspect

MODULES = (
    "kernels.test_tokens",
    "language.extra.test_libshmem_device",
    "layers.test_autocast",
    "layers.test_tp_attention",
    "layers.test_tp_mlp",
    "mega_triton_kernel.test_builder",
    "mega_triton_kernel.test_ranks",
    "mega_triton_kernel.test_tasks",
    "ops.test_activation",
    "ops.test_ag_gemm",
    "ops.test_ag_gemm_gathered",
    "ops.test_all_gather",
    "ops.test_all_reduce",
    "ops.test_all_to_all",
    "ops.test_broadcast",
    "ops.test_epilogues",
    "ops.test_gemm_gradients",
    "ops.test_gemm_pieces",
    "ops.test_gemm_rs",
    "ops.test_groups",
    "ops.test_lazy_views",
    "ops.test_long_lived_epochs",
    "ops.test_low_latency",
    "ops.test_low_latency_collectives",
    "ops.test_reduce_scatter",
    "ops.test_repeat",
    "ops.test_rotary",
    "ops.test_rounding",
    "ops.test_staging_slots",
    "ops.test_stress",
    "ops.test_two_shot_in_place",
    "runtime.test_recorded_streams",
    "runtime.test_streams",
    "sim.test_primitives",
    "tools.test_doctor_machine",
)

for _module in MODULES:
    for _name, _test in vars(importlib.import_module(f"tests.{_module}")).items():
        if _name.startswith("test_") and inspect.isfunction(_test) and "world" in inspect.signature(_test).parameters:
            assert _name not in globals(), f"two shared tests have the name {_name}"
            globals()[_name] = _test
