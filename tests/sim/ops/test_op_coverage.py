"""The committed list of ops: complete for the installed Triton, in step with the handlers, and an op outside of it is a named error."""

from __future__ import annotations

import mmap
import re

import pytest
from triton._C import libtriton
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend

from triton_dist.errors import UnsupportedOperationError
from triton_dist.sim import emit_arith, emit_asm, emit_control, emit_memory, emit_shape, emit_threads  # noqa: F401  (they fill HANDLERS)
from triton_dist.sim.codegen import HANDLERS, generate
from triton_dist.sim.ir import parse_module
from triton_dist.sim.op_coverage import DIALECTS_LEFT_OUT, read_table

STRUCTURE = {"builtin.module", "tt.func"}
"""Ops that the code generator takes apart by itself."""

LISTED_DIALECTS = "tt|arith|math|scf|cf|ub"


def candidate_names() -> list[str]:
    """Texts of the library that may be op names of the listed dialects."""
    with open(libtriton.__file__, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = set(re.findall(rb"\0((?:%s)\.[a-z_0-9]+(?:\.[a-z_0-9]+)*)(?=\0)" % LISTED_DIALECTS.encode(), content))
    return sorted(name.decode() for name in found)


@pytest.fixture
def registered_ops(tmp_path, capfd) -> set[str]:
    """The candidates that Triton's own parser knows as ops: anything else is an attribute or a piece of text."""
    context = ir.context()
    ir.load_dialects(context)
    CUDABackend(GPUTarget("cuda", 90, 32)).load_dialects(context)
    path = tmp_path / "op.mlir"
    known = set()
    for name in candidate_names():
        path.write_text(f'module {{ "{name}"() : () -> () }}')
        try:
            ir.parse_mlir_module(str(path), context)
            known.add(name)
        except RuntimeError:  # an op without its operands fails verification; the text says whether it is one
            pass
        if "unregistered operation" not in capfd.readouterr().err:
            known.add(name)
    return known


def test_every_op_of_the_installed_triton_is_listed(registered_ops, triton_version):
    version = ".".join(map(str, triton_version))
    listed = {name for name, row in read_table().items() if version in row.versions and re.match(rf"(?:{LISTED_DIALECTS})\.", name)}
    assert len(registered_ops) > 150
    assert registered_ops - listed == set(), "new ops of this Triton: list them, and cover them or say why not"
    assert listed - registered_ops == set(), "ops that this Triton does not have"


def test_every_op_is_handled_or_has_a_reason():
    table = read_table()
    handled = set(HANDLERS) | STRUCTURE
    assert handled - set(table) == set(), "handlers of ops that are not on the list"
    assert {name for name, row in table.items() if not row.why_not} - handled == set(), "listed as covered, but without a handler"
    assert {name for name, row in table.items() if row.why_not} & handled == set(), "covered, but listed as not"


def module_with(operation: str) -> str:
    return f"""
"builtin.module"() ({{
  "tt.func"() <{{function_type = (i32) -> (), sym_name = "kernel", sym_visibility = "public"}}> ({{
  ^bb0(%arg0: i32 loc("kernel.py":1:1)):
    {operation} loc("kernel.py":7:3)
    "tt.return"() : () -> () loc("kernel.py":8:3)
  }}) : () -> () loc("kernel.py":1:1)
}}) : () -> () loc("kernel.py":0:0)
"""


UNKNOWN_OPERATIONS = [
    ('%0 = "tt.of_a_later_triton"(%arg0) : (i32) -> i32', "tt.of_a_later_triton"),
    ('%0 = "math.ctpop"(%arg0) : (i32) -> i32', "math.ctpop' (the front end makes libdevice calls"),
    ('%0 = "ttg.convert_layout"(%arg0) : (i32) -> i32', "ttg.convert_layout' (layouts come after TTIR"),
]


@pytest.mark.parametrize(("operation", "message"), UNKNOWN_OPERATIONS, ids=lambda item: item[:20])
def test_an_op_outside_of_the_list_is_an_error_with_its_source_line(operation, message):
    with pytest.raises(UnsupportedOperationError, match=rf"kernel\.py:7: .*{re.escape(message)}"):
        generate(parse_module(module_with(operation)), "kernel", 128)


def test_types_outside_of_the_list_are_errors():
    with pytest.raises(UnsupportedOperationError, match=r"kernel\.py:7: .*'f7'"):
        generate(parse_module(module_with('%0 = "arith.bitcast"(%arg0) : (i32) -> f7')), "kernel", 128)


def test_dialects_left_out_have_reasons():
    assert all(DIALECTS_LEFT_OUT.values())
    assert not set(DIALECTS_LEFT_OUT) & set(LISTED_DIALECTS.split("|"))
