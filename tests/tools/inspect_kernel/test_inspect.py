"""The report of small kernels and of this package's own, whose widths are known."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import triton.language as tl

from tests.compiled_checks.kernels import product_kernel
from tests.tools.inspect_kernel.kernels import bulk_kernel, copy_kernel, own_kernel, put_kernel, words_kernel
from triton_dist.errors import InvalidArgumentError
from triton_dist.ops.collectives.all_reduce import one_shot_kernel
from triton_dist.ops.collectives.two_shot import two_shot_kernel
from triton_dist.ops.gemm.ag_gemm_kernels import gathered_gemm_kernel, push_shard_kernel
from triton_dist.tools import inspect_kernel
from triton_dist.tools.inspect import machine_code

COPY = "tests.tools.inspect_kernel.kernels:copy_kernel"
SHARD = {
    "shard": "*bf16:16", "gathered": "*bf16:16", "ready": "*i32:16", "flags": "*i32:16", "world_ranks": "*i32:16",
    "index": "i32", "size": "i32", "rows": "i32:16", "columns": "i32:16", "blocks": "i32",
}  # fmt: skip
SUM = {"SIZE": 4, "WORDS": 4, "BLOCK": 4096, "SUM": tl.float32, "OP": "sum"}


def accesses(report, kind):
    """Widths of all lines of a kind, with the way there."""
    return [(one.way, dict(one.widths)) for one in report.remote if one.kind == kind]


@pytest.mark.parametrize("get", [False, True])
@pytest.mark.parametrize(("hint", "width"), [(":16", 16), ("", 4)])
def test_the_width_of_a_copy(hint, width, get):
    """2048 elements over 128 threads; a stride that may be odd leaves 4 bytes of each."""
    report = inspect_kernel(copy_kernel, f"*fp32:16, *fp32:16, i32, i32{hint}, 2048, {get}", target="sm_90")
    assert accesses(report, "load" if get else "store") == [("symm_at", {width: 2048 * 4 // 128 // width})]
    assert accesses(report, "store" if get else "load") == [] and report.narrowest_remote == width
    place = report.remote[0]
    assert place.file.endswith("kernels.py") and "symm_at(" in Path(place.file).read_text().splitlines()[place.line - 1]
    counts = report.resources.counts
    assert counts is not None and counts.get("STG.E.128" if width == 16 else "STG.E", 0) == 64 // width
    assert report.resources.registers and report.resources.spills == 0 and report.spins == () and report.ordered == ()


@pytest.mark.parametrize("arch", [90, 100])
@pytest.mark.parametrize("count", ["i32", "i32:16"])
@pytest.mark.parametrize("kernel", [one_shot_kernel, two_shot_kernel])
def test_all_reduce_moves_16_bytes_at_a_time(kernel, count, arch):
    """Whatever the count. The peers' addresses come from a table."""
    types = dict.fromkeys(("x", "out", "staging"), "*bf16:16") | dict.fromkeys(("padded", "part", "capacity"), "i32:16")
    types |= dict.fromkeys(
        ("peer_staging", "arrived", "peer_arrived", "epoch", "places", "peer_places", "done", "peer_done", "epochs"), "*i64"
    )
    types |= {"finished": "*i32", "index": "i32", "count": count}
    two = kernel is two_shot_kernel
    constants = SUM | ({"READ": False, "WRITTEN": False} if two else {})
    report = inspect_kernel(kernel, {name: types[name] for name in kernel.arg_names if name in types}, constants, target=arch, num_warps=8)
    # 4096 elements over 256 threads are two of 16 bytes, from (and for two-shot to) each of 4 ranks.
    assert accesses(report, "load") == ([("table", {16: 2}), ("table", {16: 6})] if two else [("table", {16: 8})])  # first rank, others
    assert accesses(report, "store") == ([("table", {16: 8})] if two else [])
    assert accesses(report, "atomic") == [("table", {8: 1})] * (2 if two else 1)
    signals = [(one.operation, one.semantic, one.scope, one.count) for one in report.ordered if one.way]
    assert signals == [("atom.exch", "release", "sys", 2 if two else 1)]
    assert [(one.semantic, one.scope, one.bits) for one in report.spins] == [("acquire", "sys", 64)] * (2 if two else 1)


def test_the_producer_of_ag_gemm():
    constants = {"ROWS_PER_SIGNAL": 512, "MAX": 8, "TILE_M": 64, "TILE_K": 128}
    report = inspect_kernel(push_shard_kernel, SHARD, constants, num_warps=8)
    assert accesses(report, "store") == [("symm_at", {16: 64 * 128 * 2 // 256 // 16})] and accesses(report, "load") == []
    assert [(one.operation, one.scope, one.way) for one in report.ordered] == [("atom.add", "sys", ""), ("atom.exch", "sys", "symm_at")]
    odd = inspect_kernel(push_shard_kernel, SHARD | {"columns": "i32"}, constants, num_warps=8)
    assert odd.narrowest_remote == 2


def test_the_products_of_ag_gemm():
    """Nothing but a signal leaves the rank; three stages of both operands."""
    boxes = {
        "shard_desc": "[1,128,64]", "gathered_desc": "[1,128,64]", "b_desc": "[256,64]", "out_desc": "[1,128,256]",
        "b_part_desc": "[256,64]", "out_part_desc": "[1,128,256]",
    }  # fmt: skip
    types = {name: f"tensordesc<bf16{box}>" for name, box in boxes.items()}
    types |= dict.fromkeys(("ready", "flags", "finished", "world_ranks"), "*i32:16") | dict.fromkeys(("scale_a", "scale_b"), "*fp32")
    types |= dict.fromkeys(("index", "size", "blocks", "blocks_per_wait", "tiles_m", "tiles_n", "epilogue_row"), "i32")
    types |= {"depth": "i32:16"}
    constants = {
        "TILE_M": 128, "TILE_N": 256, "TILE_K": 64, "GROUP": 8, "TAIL_PARTS": 1, "MAX": 8, "CAPACITY": 32, "SCALED": False,
        "B_BY_COLUMNS": True, "IMPRECISE": None, "OUT": tl.bfloat16, "epilogue_args": None, "EPILOGUE": None, "PLACED": False,
    }  # fmt: skip
    report = inspect_kernel(gathered_gemm_kernel, types, constants, num_warps=8, num_stages=3)
    assert [(one.kind, one.way) for one in report.remote] == [("atomic", "symm_at")] and report.narrowest_remote is None
    assert [(loop.loads, loop.buffers, loop.pipelined, loop.waits) for loop in report.loops] == [(2, 3, True, 0)]
    assert report.bulk["load"] >= 4 and report.bulk["store"] >= 2
    assert report.resources.shared > 3 * (128 + 256) * 64 * 2


@pytest.mark.parametrize(
    ("wait", "stages", "arch", "expected"),
    [
        ("before", 3, 90, (3, True, 0)),
        ("before", 4, 100, (4, True, 0)),
        ("before", 1, 90, (1, False, 0)),
        ("inside", 1, 90, (1, False, 1)),
    ],
)
def test_loops(wait, stages, arch, expected):
    report = inspect_kernel(product_kernel, f"*fp16:16, *fp16:16, *fp16:16, *i32:16, i32:16, '{wait}', {stages}", target=arch)
    assert [(loop.buffers, loop.pipelined, loop.waits) for loop in report.loops] == [expected]
    assert len(report.spins) == 1


def test_a_tile_by_tma():
    report = inspect_kernel(bulk_kernel, "*fp16:16, *fp16:16, i32, i32, 64")
    assert accesses(report, "store") == [("symm_at", {"TMA": 1})] and report.bulk == {"load": 1, "store": 1}
    assert any("proxy" in name for name in report.fences)


def test_words():
    """Orders and scopes as they were asked for; own loops are waits, too."""
    report = inspect_kernel(words_kernel, "*i32, i32")
    # Triton 3.9 makes a reduction of an atomic whose result nobody uses.
    ordered = {(one.operation.replace("red.", "atom."), one.semantic, one.scope, one.way) for one in report.ordered}
    assert ordered == {
        ("st", "release", "gpu", "symm_at"), ("ld", "acquire", "sys", "symm_at"), ("atom.add", "relaxed", "cta", "symm_at"),
        ("atom.cas", "acquire", "sys", ""),
    }  # fmt: skip
    assert [(one.semantic, one.scope, one.bits, one.own) for one in report.spins] == [
        ("acquire", "gpu", 32, False), ("acquire", "sys", 32, True),
    ]  # fmt: skip
    assert sorted((kind, *widths) for kind in ("load", "store", "atomic") for _, widths in accesses(report, kind)) == [
        ("atomic", 4), ("load", 4), ("store", 4),
    ]  # fmt: skip
    assert report.barriers >= 2


@pytest.mark.parametrize("get", [False, True])
def test_bytes_by_shmem(get):
    """One side of the copy is another rank's; units of 16 bytes, and narrower ones for what is left over."""
    report = inspect_kernel(put_kernel, f"*u8, *u8, i64, i32, {get}")
    (one,) = report.remote
    assert (one.kind, one.way) == ("load" if get else "store", "symm_at")
    assert set(one.widths) == {1, 2, 4, 8, 16} and one.widths[16] > one.widths[8]


def test_spills():
    """A sort of 32 elements a thread, with few registers."""
    roomy = inspect_kernel(own_kernel, "*fp32:16, *fp32:16, 4096").resources
    tight = inspect_kernel(own_kernel, "*fp32:16, *fp32:16, 4096", maxnreg=24).resources
    assert tight.registers <= 24 < roomy.registers and tight.spills > 0 == roomy.spills and tight.stack > 0


def test_without_the_tools_of_cuda(monkeypatch):
    monkeypatch.setattr(machine_code, "tool", lambda name: None)
    report = inspect_kernel(own_kernel, "*fp32:16, *fp32:16, 256")
    found = report.resources
    assert (found.registers, found.stack, found.spills, found.counts) == (None, None, None, None)
    assert "no cuobjdump on this machine" in found.missing and "no nvdisasm" in found.missing

    render = pytest.importorskip("triton_dist.tools.inspect.render", reason="needs rich")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        render.print_report(report)
    said = out.getvalue()
    assert "registers ?" in said and "no cuobjdump" in said and "no access of other ranks' memory" in said


def command(*arguments: str) -> subprocess.CompletedProcess:
    pytest.importorskip("typer")
    full = [sys.executable, "-m", "triton_dist.tools.cli", "inspect", *arguments]
    return subprocess.run(full, capture_output=True, text=True, timeout=200)


def test_the_command_line():
    done = command(COPY, "--signature", "*fp32:16, *fp32:16, i32, i32", "--constexpr", "TILE=2048", "--num-warps", "8", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    same = inspect_kernel(copy_kernel, "*fp32:16, *fp32:16, i32, i32", {"TILE": 2048}, num_warps=8)
    assert report == json.loads(json.dumps(dataclasses.asdict(same)))
    assert report["options"]["num_warps"] == 8 and report["remote"][0]["widths"] == {"4": 8}
    done = command(COPY, "--signature", "*fp32:16, *fp32:16, i32, i32, 2048")
    assert "narrowest access over the links: 4 bytes a thread, where 16 are possible" in done.stdout
    for arguments, words in (
        ((COPY, "--constexpr", "TILE"), "--constexpr 'TILE': write NAME=VALUE"),
        ((COPY, "--signature", "*fp32"), "the signature has no item for 'target'"),
        (("tests.tools.inspect_kernel.kernels:none",), "has no 'none'"),
        ((COPY, "--target", "gfx942"), "no item"),
        ((".foo:k",), "'.foo' is no name of a module"),
    ):
        done = command(*arguments)
        assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [("num_warps", 3), ("num_warps", 0), ("num_warps", 64), ("num_ctas", 99), ("num_ctas", 0), ("num_stages", -1), ("target", "sm_42"),
     ("target", "sm_999")],
)  # fmt: skip
def test_settings_that_no_kernel_is_compiled_with(option, value):
    """By the command one line of text and exit code 2, by the function a named error."""
    typer = pytest.importorskip("typer")
    from typer.testing import CliRunner

    from triton_dist.tools.cli import _app

    with pytest.raises(InvalidArgumentError, match=f"{option}.*{value}"):
        inspect_kernel(own_kernel, "*fp32, *fp32, 256", **{option: value})
    place = "tests.tools.inspect_kernel.kernels:own_kernel"
    arguments = ["inspect", place, "--signature", "*fp32, *fp32, 256", f"--{option.replace('_', '-')}", str(value)]
    done = CliRunner().invoke(_app(typer), arguments)
    assert done.exit_code == 2 and len(done.output.strip().splitlines()) == 1 and option in done.output


def test_bad_arguments():
    with pytest.raises(InvalidArgumentError, match="no compile option num_wraps"):
        inspect_kernel(own_kernel, "*fp32, *fp32, 256", num_wraps=2)
    with pytest.raises(InvalidArgumentError, match="give a compute capability"):
        inspect_kernel(own_kernel, "*fp32, *fp32, 256", target="hopper")
