"""Which way an operator goes by itself at a size, by the choice that is in the sources now: for pages that say what runs where it loses."""

from __future__ import annotations

import importlib

from .results import CaseResult

_ITEMSIZE = {"bf16": 2, "fp16": 2, "fp32": 4}
LIBRARY = ("library", "nccl")
"""What the operators call the library's way."""


def chosen_method(operator: str, case: CaseResult) -> str:
    """The method that "auto" takes on a GPU where a library may be taken (``exact=False``). operator: of ``triton_dist.ops``.

    "one kernel" for an operator that has no choice, "" for what is no operator.
    """
    if operator == "all_reduce_symmetric":
        from triton_dist.ops.collectives import all_reduce

        return all_reduce.choose_method(case.sizes["bytes"], case.world_size, placed=True)
    if operator in ("ag_gemm", "gemm_rs", "gemm_ar"):
        return _of_product(operator, case)
    try:
        module = importlib.import_module(f"triton_dist.ops.collectives.{operator}")
    except ModuleNotFoundError:
        return ""
    choose = getattr(module, "choose_method", None)
    return "one kernel" if choose is None else choose(case.sizes["bytes"], case.world_size)


def _of_product(operator: str, case: CaseResult) -> str:
    from triton_dist.ops.gemm import plan, scatter_plan

    rows, columns, depth = (case.sizes[name] for name in "MNK")
    size, itemsize = case.world_size, _ITEMSIZE.get(case.dtype, 1)
    if operator == "gemm_ar":
        return scatter_plan.choose_ar_method("auto", size, rows, columns * 2, "cuda", depth_bytes=depth * itemsize)
    shape = (-(-rows // size), columns, depth, itemsize)
    if operator == "ag_gemm":
        return plan.choose_plan("auto", size, *shape, "cuda").method
    return scatter_plan.choose_rs_method("auto", size, *shape, "cuda", library=True)
