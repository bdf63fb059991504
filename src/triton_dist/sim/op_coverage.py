"""Which ops a kernel's TTIR can contain, for each Triton version, and which of them the simulator runs.

``TABLE`` has a row for every op of the dialects that stock Triton's front end and TTIR passes write: its name, the versions that know it,
and "covered" or a word for why it is not. A test compares it with ``codegen.HANDLERS`` and with what the installed Triton registers.
"""

from __future__ import annotations

from dataclasses import dataclass

COVERED = "covered"

REASONS = {
    "rewritten": "a TTIR pass turns block pointers into pointer arithmetic",
    "never made": "no builder of the front end and no TTIR pass makes it",
    "composed": "the front end makes libdevice calls of it, or composes it of other ops",
    "other loops": "the front end makes only for, while and if",
    "tt.assert": "the front end makes tt.assert",
    "two-way": "the front end makes only two-way branches",
    "reachable": "the front end makes no unreachable blocks",
}
"""Why the simulator does not run an op, by the word that the table has for it."""

TABLE = """
builtin.module                        3.6 3.7 3.9  covered
tt.addptr                             3.6 3.7 3.9  covered
tt.advance                            3.6 3.7      rewritten
tt.approx_divf                        3.9          covered
tt.assert                             3.6 3.7 3.9  covered
tt.atomic_cas                         3.6 3.7 3.9  covered
tt.atomic_load                        3.9          covered
tt.atomic_poll                        3.9          covered
tt.atomic_rmw                         3.6 3.7 3.9  covered
tt.atomic_store                       3.9          covered
tt.bitcast                            3.6 3.7 3.9  covered
tt.broadcast                          3.6 3.7 3.9  covered
tt.call                               3.6 3.7 3.9  covered
tt.cat                                3.6 3.7 3.9  covered
tt.clampf                             3.6 3.7 3.9  covered
tt.descriptor_gather                  3.6 3.7 3.9  covered
tt.descriptor_load                    3.6 3.7 3.9  covered
tt.descriptor_reduce                  3.6 3.7 3.9  covered
tt.descriptor_scatter                 3.6 3.7 3.9  covered
tt.descriptor_store                   3.6 3.7 3.9  covered
tt.dot                                3.6 3.7 3.9  covered
tt.dot_scaled                         3.6 3.7 3.9  covered
tt.elementwise_inline_asm             3.6 3.7 3.9  covered
tt.expand_dims                        3.6 3.7 3.9  covered
tt.extern_elementwise                 3.6 3.7 3.9  covered
tt.fp_to_fp                           3.6 3.7 3.9  covered
tt.func                               3.6 3.7 3.9  covered
tt.gather                             3.6 3.7 3.9  covered
tt.get_num_programs                   3.6 3.7 3.9  covered
tt.get_program_id                     3.6 3.7 3.9  covered
tt.grid_dependency_launch_dependents  3.9          covered
tt.grid_dependency_wait               3.9          covered
tt.histogram                          3.6 3.7 3.9  covered
tt.int_to_ptr                         3.6 3.7 3.9  covered
tt.join                               3.6 3.7 3.9  covered
tt.load                               3.6 3.7 3.9  covered
tt.make_range                         3.6 3.7 3.9  covered
tt.make_tensor_descriptor             3.6 3.7 3.9  covered
tt.make_tensor_ptr                    3.6 3.7      rewritten
tt.map_elementwise                    3.6 3.7 3.9  covered
tt.map_elementwise.return             3.6 3.7 3.9  covered
tt.mulhiui                            3.6 3.7 3.9  covered
tt.precise_divf                       3.6 3.7 3.9  covered
tt.precise_sqrt                       3.6 3.7 3.9  covered
tt.print                              3.6 3.7 3.9  covered
tt.ptr_to_int                         3.6 3.7 3.9  covered
tt.reduce                             3.6 3.7 3.9  covered
tt.reduce.return                      3.6 3.7 3.9  covered
tt.reshape                            3.6 3.7 3.9  covered
tt.return                             3.6 3.7 3.9  covered
tt.scan                               3.6 3.7 3.9  covered
tt.scan.return                        3.6 3.7 3.9  covered
tt.splat                              3.6 3.7 3.9  covered
tt.split                              3.6 3.7 3.9  covered
tt.store                              3.6 3.7 3.9  covered
tt.trans                              3.6 3.7 3.9  covered
tt.unsplat                            3.6 3.7 3.9  covered
arith.addf                            3.6 3.7 3.9  covered
arith.addi                            3.6 3.7 3.9  covered
arith.addui_extended                  3.6 3.7 3.9  never made
arith.andi                            3.6 3.7 3.9  covered
arith.bitcast                         3.6 3.7 3.9  covered
arith.ceildivsi                       3.6 3.7 3.9  never made
arith.ceildivui                       3.6 3.7 3.9  never made
arith.cmpf                            3.6 3.7 3.9  covered
arith.cmpi                            3.6 3.7 3.9  covered
arith.constant                        3.6 3.7 3.9  covered
arith.convertf                        3.9          never made
arith.divf                            3.6 3.7 3.9  covered
arith.divsi                           3.6 3.7 3.9  covered
arith.divui                           3.6 3.7 3.9  covered
arith.extf                            3.6 3.7 3.9  covered
arith.extsi                           3.6 3.7 3.9  covered
arith.extui                           3.6 3.7 3.9  covered
arith.floordivsi                      3.6 3.7 3.9  never made
arith.flush_denormals                 3.9          never made
arith.fptosi                          3.6 3.7 3.9  covered
arith.fptoui                          3.6 3.7 3.9  covered
arith.index_cast                      3.6 3.7 3.9  covered
arith.index_castui                    3.6 3.7 3.9  covered
arith.maximumf                        3.6 3.7 3.9  covered
arith.maxnumf                         3.6 3.7 3.9  covered
arith.maxsi                           3.6 3.7 3.9  covered
arith.maxui                           3.6 3.7 3.9  covered
arith.minimumf                        3.6 3.7 3.9  covered
arith.minnumf                         3.6 3.7 3.9  covered
arith.minsi                           3.6 3.7 3.9  covered
arith.minui                           3.6 3.7 3.9  covered
arith.mulf                            3.6 3.7 3.9  covered
arith.muli                            3.6 3.7 3.9  covered
arith.mulsi_extended                  3.6 3.7 3.9  never made
arith.mului_extended                  3.6 3.7 3.9  never made
arith.negf                            3.6 3.7 3.9  covered
arith.ori                             3.6 3.7 3.9  covered
arith.remf                            3.6 3.7 3.9  covered
arith.remsi                           3.6 3.7 3.9  covered
arith.remui                           3.6 3.7 3.9  covered
arith.scaling_extf                    3.6 3.7 3.9  never made
arith.scaling_truncf                  3.6 3.7 3.9  never made
arith.select                          3.6 3.7 3.9  covered
arith.shli                            3.6 3.7 3.9  covered
arith.shrsi                           3.6 3.7 3.9  covered
arith.shrui                           3.6 3.7 3.9  covered
arith.sitofp                          3.6 3.7 3.9  covered
arith.subf                            3.6 3.7 3.9  covered
arith.subi                            3.6 3.7 3.9  covered
arith.subui_extended                  3.9          never made
arith.truncf                          3.6 3.7 3.9  covered
arith.trunci                          3.6 3.7 3.9  covered
arith.uitofp                          3.6 3.7 3.9  covered
arith.xori                            3.6 3.7 3.9  covered
math.absf                             3.6 3.7 3.9  covered
math.absi                             3.6 3.7 3.9  covered
math.acos                             3.6 3.7 3.9  composed
math.acosh                            3.6 3.7 3.9  composed
math.asin                             3.6 3.7 3.9  composed
math.asinh                            3.6 3.7 3.9  composed
math.atan                             3.6 3.7 3.9  composed
math.atan2                            3.6 3.7 3.9  composed
math.atanh                            3.6 3.7 3.9  composed
math.cbrt                             3.6 3.7 3.9  composed
math.ceil                             3.6 3.7 3.9  covered
math.clampf                           3.6 3.7 3.9  composed
math.copysign                         3.6 3.7 3.9  composed
math.cos                              3.6 3.7 3.9  covered
math.cosh                             3.6 3.7 3.9  composed
math.ctlz                             3.6 3.7 3.9  composed
math.ctpop                            3.6 3.7 3.9  composed
math.cttz                             3.6 3.7 3.9  composed
math.erf                              3.6 3.7 3.9  covered
math.erfc                             3.6 3.7 3.9  composed
math.exp                              3.6 3.7 3.9  covered
math.exp2                             3.6 3.7 3.9  covered
math.expm1                            3.6 3.7 3.9  composed
math.floor                            3.6 3.7 3.9  covered
math.fma                              3.6 3.7 3.9  covered
math.fpowi                            3.6 3.7 3.9  composed
math.ipowi                            3.6 3.7 3.9  composed
math.isfinite                         3.6 3.7 3.9  composed
math.isinf                            3.6 3.7 3.9  composed
math.isnan                            3.6 3.7 3.9  composed
math.isnormal                         3.6 3.7 3.9  composed
math.log                              3.6 3.7 3.9  covered
math.log10                            3.6 3.7 3.9  composed
math.log1p                            3.6 3.7 3.9  composed
math.log2                             3.6 3.7 3.9  covered
math.powf                             3.6 3.7 3.9  composed
math.round                            3.6 3.7 3.9  composed
math.roundeven                        3.6 3.7 3.9  composed
math.rsqrt                            3.6 3.7 3.9  covered
math.sin                              3.6 3.7 3.9  covered
math.sincos                           3.7 3.9      composed
math.sinh                             3.6 3.7 3.9  composed
math.sqrt                             3.6 3.7 3.9  covered
math.tan                              3.6 3.7 3.9  covered
math.tanh                             3.6 3.7 3.9  covered
math.trunc                            3.6 3.7 3.9  composed
scf.condition                         3.6 3.7 3.9  covered
scf.execute_region                    3.6 3.7 3.9  other loops
scf.for                               3.6 3.7 3.9  covered
scf.forall                            3.6 3.7 3.9  other loops
scf.forall.in_parallel                3.6 3.7 3.9  other loops
scf.if                                3.6 3.7 3.9  covered
scf.index_switch                      3.6 3.7 3.9  other loops
scf.parallel                          3.6 3.7 3.9  other loops
scf.reduce                            3.6 3.7 3.9  other loops
scf.reduce.return                     3.6 3.7 3.9  other loops
scf.while                             3.6 3.7 3.9  covered
scf.yield                             3.6 3.7 3.9  covered
cf.assert                             3.6 3.7 3.9  tt.assert
cf.br                                 3.6 3.7 3.9  covered
cf.cond_br                            3.6 3.7 3.9  covered
cf.switch                             3.6 3.7 3.9  two-way
ub.poison                             3.6 3.7 3.9  covered
ub.unreachable                        3.7 3.9      reachable
llvm.intr.assume                      3.6 3.7 3.9  covered
gpu.barrier                           3.6          covered
ttg.barrier                           3.7 3.9      covered
"""

DIALECTS_LEFT_OUT: dict[str, str] = {
    "ttg": "layouts come after TTIR; only its barrier can be in TTIR, and Gluon kernels, which write this dialect, are not run",
    "ttng": "NVIDIA's part of the layout stage and of Gluon",
    "amdg": "AMD's part of the layout stage and of Gluon",
    "nvws": "warp specialisation, which comes after TTIR",
    "tti": "instrumentation, which comes after TTIR",
    "proton": "profiling, which comes after TTIR",
    "nvgpu": "NVIDIA's LLVM stage",
    "nvvm": "NVIDIA's LLVM stage",
    "rocdl": "AMD's LLVM stage",
    "llvm": "the LLVM stage; tl.assume alone writes one of its intrinsics into TTIR",
    "gpu": "the LLVM stage; Triton 3.6 alone writes gpu.barrier into TTIR",
}
"""Why no other op of these dialects is in the table."""


@dataclass(frozen=True)
class Row:
    """One op. versions: Triton versions that register it. why_not: empty if the simulator runs it."""

    versions: tuple[str, ...]
    why_not: str


def read_table() -> dict[str, Row]:
    """``TABLE`` by op name."""
    rows: dict[str, Row] = {}
    for line in TABLE.strip().splitlines():
        name, *rest = line.split()
        versions = tuple(word for word in rest if word[0].isdigit())
        status = " ".join(rest[len(versions) :])
        rows[name] = Row(versions, "" if status == COVERED else REASONS[status])
    return rows


def why_not_covered(operation: str) -> str:
    """Why an op is not run, for the error message; empty if the table does not say."""
    row = read_table().get(operation)
    return row.why_not if row is not None else DIALECTS_LEFT_OUT.get(operation.partition(".")[0], "")
