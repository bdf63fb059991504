"""Every file that is mutated, and the program of ``programs`` that runs it. All shipped ops, kernels and examples are here."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]

TARGETS: dict[str, str] = {
    "src/triton_dist/ops/collectives/all_gather.py": "ALL_GATHER",
    "src/triton_dist/ops/collectives/all_reduce.py": "ALL_REDUCE",
    "src/triton_dist/ops/collectives/all_to_all.py": "ALL_TO_ALL",
    "src/triton_dist/ops/collectives/barrier.py": "BARRIER",
    "src/triton_dist/ops/collectives/broadcast.py": "BROADCAST",
    "src/triton_dist/ops/collectives/reduce_scatter.py": "REDUCE_SCATTER",
    "src/triton_dist/ops/collectives/low_latency.py": "LOW_LATENCY",
    "src/triton_dist/ops/collectives/places.py": "TWO_SHOT",
    "src/triton_dist/ops/collectives/two_shot.py": "TWO_SHOT",
    "src/triton_dist/ops/collectives/staging.py": "ALL_REDUCE",
    "src/triton_dist/ops/gemm/ag_gemm.py": "AG_GEMM",
    "src/triton_dist/ops/gemm/ag_gemm_kernels.py": "AG_GEMM",
    "src/triton_dist/ops/gemm/gemm_rs.py": "GEMM_RS",
    "src/triton_dist/ops/gemm/gemm_rs_kernels.py": "GEMM_SUMS",
    "src/triton_dist/kernels/common_ops.py": "SIGNALS",
    "src/triton_dist/kernels/nvidia/common_ops.py": "NODE_BARRIER",
    "examples/01_producer_consumer.py": "TUTORIAL",
    "examples/03_simt.py": "SIMT",
    "examples/04_profiler.py": "PROFILED",
    "examples/20_autotune.py": "AUTOTUNE",
    "examples/05_torch_symmetric_memory.py": "TORCH_SYMMETRIC",
}

NOTHING_TO_MUTATE = (
    "src/triton_dist/ops/collectives/arguments.py",
    "src/triton_dist/ops/collectives/plans.py",
    "src/triton_dist/ops/collectives/reduction.py",
    "src/triton_dist/ops/collectives/words.py",
    "src/triton_dist/ops/team.py",
    "src/triton_dist/ops/repeat.py",
    "src/triton_dist/ops/replay.py",
    "src/triton_dist/ops/gemm/custom_ops.py",
    "src/triton_dist/ops/gemm/gemm_ar.py",
    "src/triton_dist/ops/gemm/gradients.py",
    "src/triton_dist/ops/gemm/library.py",
    "src/triton_dist/ops/gemm/operands.py",
    "src/triton_dist/ops/gemm/plan.py",
    "src/triton_dist/ops/gemm/scatter_plan.py",
    "src/triton_dist/ops/gemm/scattering.py",
    "src/triton_dist/ops/gemm/slots.py",
    "src/triton_dist/ops/gemm/small.py",
    "src/triton_dist/ops/gemm/tiles.py",
    "src/triton_dist/kernels/allreduce.py",
    "src/triton_dist/kernels/nvidia/all_to_all.py",
    "src/triton_dist/kernels/nvidia/allreduce.py",
    "src/triton_dist/kernels/nvidia/reduce_scatter.py",
    "examples/02_ag_gemm.py",
    "examples/21_torch_symm.py",
    "examples/demo.py",
)
"""Files in which nothing waits, signals or resets; a test looks whether that is still so."""
