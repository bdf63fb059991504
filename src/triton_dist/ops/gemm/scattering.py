"""The launch of the persistent GEMM whose tiles go to the ranks that own their rows."""

from __future__ import annotations

from dataclasses import replace

import torch
import triton

from ...runtime.address_map import STRIDE
from ...runtime.preload import Launch
from ...runtime.symmetric import symm_peer
from ...triton_dtypes import TRITON_DTYPES
from ..collectives.words import round_up
from ..team import Team
from .gemm_rs_kernels import scattering_gemm_kernel
from .operands import FP8, Operands
from .plan import Tiles, tail_parts


def suiting_scattering(operands: Operands) -> Operands:
    """The operands, or copies, such that descriptors can describe them: addresses and strides that are multiples of 16 bytes.

    A lies by rows, b by rows or columns; of fp8, by columns.
    """
    a, b = operands.a, operands.b
    a = a if _suits(a) else _in_line(a)
    if not _suits(b.t()) and (b.dtype in FP8 or not _suits(b)):
        b = _in_line(b.t()).t()
    return operands if a is operands.a and b is operands.b else replace(operands, a=a, b=b)


def _suits(matrix: torch.Tensor) -> bool:
    """Whether a descriptor can describe its rows."""
    itemsize = matrix.element_size()
    return matrix.stride(1) == 1 and matrix.data_ptr() % 16 == 0 and matrix.stride(0) * itemsize % 16 == 0


def _in_line(matrix: torch.Tensor) -> torch.Tensor:
    """A copy with rows of whole 16 bytes."""
    rows, columns = matrix.shape
    made = torch.empty((rows, round_up(columns, 16 // matrix.element_size())), dtype=matrix.dtype, device=matrix.device)
    return made[:, :columns].copy_(matrix)


def scattering_launch(operands: Operands, slots: torch.Tensor, team: Team, tiles: Tiles, words: tuple[torch.Tensor, ...]) -> Launch:
    """``scattering_gemm_kernel`` for operands that suit it.

    slots: (size, rows, columns), this rank's, symmetric. words: ready and flags, (size,) each and symmetric, and the team's world ranks.
    """
    from triton.tools.tensor_descriptor import TensorDescriptor

    a, b, depth = operands.a, operands.b, operands.depth
    _, rows, columns = slots.shape
    by_columns = b.stride(0) == 1
    b_matrix = b.t() if by_columns else b
    tiles_m, tiles_n = triton.cdiv(rows, tiles.m), triton.cdiv(columns, tiles.n)
    total = team.size * tiles_m * tiles_n
    programs = min(tiles.programs or _sm_count(), total)
    left = total % programs
    # The tiles of the last turn are this rank's own, if there are no more of them than it has.
    parts = tail_parts(left, programs, tiles.n) if tiles.split_tail and 0 < left <= tiles_m * tiles_n else 1
    first_rank, last_rank = min(team.ranks), max(team.ranks)
    mine = symm_peer(slots, first_rank)[team.index]

    def b_boxes(width: int) -> TensorDescriptor:
        return TensorDescriptor.from_tensor(b_matrix, [width, tiles.k] if by_columns else [tiles.k, width])

    def slot_boxes(width: int) -> TensorDescriptor:
        # The ranks' heaps lie ``STRIDE`` apart: to a descriptor, all of them are one tensor.
        shape, strides = [last_rank - first_rank + 1, rows, columns], [STRIDE // slots.element_size(), columns, 1]
        return TensorDescriptor(mine, shape, strides, [1, tiles.m, width])

    a_desc = TensorDescriptor(a, [team.size, rows, depth], [rows * a.stride(0), a.stride(0), 1], [1, tiles.m, tiles.k])
    scale_a, scale_b = operands.scales or (words[0], words[0])
    return Launch.of(scattering_gemm_kernel, programs)(
        a_desc, b_boxes(tiles.n), slot_boxes(tiles.n), b_boxes(tiles.n // parts), slot_boxes(tiles.n // parts), *words, scale_a, scale_b,
        team.index, team.size, first_rank, tiles_m, tiles_n, depth,
        TILE_M=tiles.m, TILE_N=tiles.n, TILE_K=tiles.k, GROUP=tiles.group, TAIL_PARTS=parts, SCALED=operands.scales is not None,
        B_BY_COLUMNS=by_columns, IMPRECISE=tiles.k if a.dtype in FP8 else None, OUT=TRITON_DTYPES[slots.dtype],
        num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip


def _sm_count() -> int:
    driver = triton.runtime.driver.active
    return driver.utils.get_device_properties(driver.get_current_device())["multiprocessor_count"]
