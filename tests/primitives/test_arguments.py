"""Wrong arguments are compile-time errors: the argument, the value seen, what is allowed, and the user's own line."""

from __future__ import annotations

import pytest
import triton
import triton.language as tl
from compile_targets import AMD, source_of, target_of
from triton.compiler.errors import CompilationError

import triton_dist.language as dl
from triton_dist.errors import PrimitiveArgumentError
from triton_dist.language.extra import libshmem_device

TYPES = {
    "words": "*i32",
    "longs": "*u64",
    "floats": "*fp32",
    "number": "i32",
    "long": "i64",
    "unsigned_long": "u64",
    "byte": "i8",
    "real": "fp32",
}


@triton.jit
def kernel(words, longs, floats, number, long, unsigned_long, byte, real, CASE: tl.constexpr):
    lanes = tl.arange(0, 16)
    if CASE == "wait scope":
        dl.wait(words, 1, "cluster", "acquire")
    elif CASE == "wait release":
        dl.wait(words, 1, "sys", "release")
    elif CASE == "wait acq_rel":
        dl.wait(words, 1, "sys", sem="acq_rel")
    elif CASE == "wait semantic at run time":
        dl.wait(words, 1, "sys", number)
    elif CASE == "wait two semantics":
        dl.wait(words, 1, "sys", semantic="acquire", sem="relaxed")
    elif CASE == "wait cmp":
        dl.wait(words, 1, "sys", "acquire", cmp="equal")
    elif CASE == "wait float word":
        dl.wait(floats, 1, "sys", "acquire")
    elif CASE == "wait not a pointer":
        dl.wait(number, 1, "sys", "acquire")
    elif CASE == "wait tensor of pointers":
        dl.wait(words + lanes, 16, "sys", "acquire")
    elif CASE == "wait count":
        dl.wait(words, real, "sys", "acquire")
    elif CASE == "wait float value":
        dl.wait(words, 1, "sys", "acquire", waitValue=1.5)
    elif CASE == "wait wide value":
        dl.wait(words, 1, "sys", "acquire", waitValue=long)
    elif CASE == "wait wide constant":
        dl.wait(words, 1, "sys", "acquire", waitValue=4294967296)
    elif CASE == "wait tensor value":
        dl.wait(words, 1, "sys", "acquire", waitValue=lanes)
    elif CASE == "wait ge scope":
        dl.wait_ge(words, 1, "device", "acquire")
    elif CASE == "consume token":
        dl.consume_token(words, real)
    elif CASE == "symm_at float rank":
        dl.symm_at(words, real)
    elif CASE == "symm_at float constant":
        dl.symm_at(words, 1.0)
    elif CASE == "symm_at bool":
        dl.symm_at(words, True)
    elif CASE == "symm_at name":
        dl.symm_at(words, "left")
    elif CASE == "symm_at not a pointer":
        dl.symm_at(number, 1)
    elif CASE == "symm_at huge":
        dl.symm_at(words, 4294967296)
    elif CASE == "notify tensor rank":
        dl.notify(words, lanes)
    elif CASE == "notify op":
        dl.notify(words, 0, sig_op="max")
    elif CASE == "notify scope":
        dl.notify(words, 0, comm_scope="sys")
    elif CASE == "notify float word":
        dl.notify(floats, 0)
    elif CASE == "notify float signal":
        dl.notify(words, 0, signal=real)
    elif CASE == "ld release":
        dl.ld(words, "sys", "release")
    elif CASE == "ld tensor":
        dl.ld(words + lanes)
    elif CASE == "st acquire":
        dl.st(words, 1, sem="acquire")
    elif CASE == "st float to integer":
        dl.st(words, 1.5)
    elif CASE == "st tensor":
        dl.st(words, lanes)
    elif CASE == "atomic float":
        dl.atomic_add(floats, 1)
    elif CASE == "atomic semantic":
        dl.atomic_cas(words, 0, 1, "sys", "seq_cst")
    elif CASE == "rank axis":
        dl.st(words, dl.rank(1))
    elif CASE == "tid axis":
        dl.st(words, dl.tid(3))
    elif CASE == "fine":
        dl.notify(words, number)
        dl.notify(words, long)
        dl.notify(words, unsigned_long, signal=byte)
        dl.notify(longs, byte, signal=number)
        dl.notify(longs, 1, signal=18446744073709551615)
        dl.notify(words, 1, signal=-1)
        dl.wait(words, long, "sys", semantic="acquire", sem="acquire", waitValue=byte)
        dl.wait(longs, byte, "gpu", waitValue=number)
        dl.st(dl.symm_at(words, unsigned_long), 1)
        dl.st(floats, 1)
        dl.st(floats, number, sem="release")
        dl.st(words, dl.rank() + dl.rank(0) + dl.rank(axis=-1))


CASES = {
    "wait scope": ("wait", "scope", "'cluster'", "'cta', 'gpu', 'sys'"),
    "wait release": ("wait", "semantic", "'release'", "'relaxed', 'acquire'"),
    "wait acq_rel": ("wait", "semantic", "'acq_rel'", "'relaxed', 'acquire'"),
    "wait semantic at run time": ("wait", "semantic", "int32", "known when the kernel is compiled"),
    "wait two semantics": ("wait", "semantic", "'acquire'", "'relaxed'"),
    "wait cmp": ("wait", "cmp", "'equal'", "'eq', 'ne', 'gt', 'ge', 'lt', 'le'"),
    "wait float word": ("wait", "barrierPtrs", "fp32", "int32, uint32, int64, uint64"),
    "wait not a pointer": ("wait", "barrierPtrs", "int32", "a scalar pointer"),
    "wait tensor of pointers": ("wait", "barrierPtrs", "16", "a scalar pointer"),
    "wait count": ("wait", "numBarriers", "fp32", "an integer"),
    "wait float value": ("wait", "waitValue", "1.5", "an integer that fits the word, int32"),
    "wait wide value": ("wait", "waitValue", "int64", "an integer that fits the word, int32"),
    "wait wide constant": ("wait", "waitValue", "4294967296", "an integer that fits the word, int32"),
    "wait tensor value": ("wait", "waitValue", "16", "an integer that fits the word, int32"),
    "wait ge scope": ("wait_ge", "scope", "'device'", "'cta', 'gpu', 'sys'"),
    "consume token": ("consume_token", "token", "fp32", "the token that a wait returned"),
    "symm_at float rank": ("symm_at", "rank", "fp32", "an integer"),
    "symm_at float constant": ("symm_at", "rank", "1.0", "an integer"),
    "symm_at bool": ("symm_at", "rank", "True", "an integer"),
    "symm_at name": ("symm_at", "rank", "'left'", "an integer"),
    "symm_at not a pointer": ("symm_at", "ptr", "int32", "a pointer"),
    "symm_at huge": ("symm_at", "rank", "4294967296", "fits int32"),
    "notify tensor rank": ("notify", "rank", "16", "an integer"),
    "notify op": ("notify", "sig_op", "'max'", "'set', 'add'"),
    "notify scope": ("notify", "comm_scope", "'sys'", "'gpu', 'intra_node', 'inter_node'"),
    "notify float word": ("notify", "ptr", "fp32", "int32, uint32, int64, uint64"),
    "notify float signal": ("notify", "signal", "fp32", "an integer that fits the word, int32"),
    "ld release": ("ld", "semantic", "'release'", "'relaxed', 'acquire'"),
    "ld tensor": ("ld", "ptr", "16", "a scalar pointer"),
    "st acquire": ("st", "semantic", "'acquire'", "'relaxed', 'release'"),
    "st float to integer": ("st", "val", "1.5", "an integer"),
    "st tensor": ("st", "val", "16", "a scalar"),
    "atomic float": ("atomic_add", "ptr", "fp32", "int32, uint32, int64, uint64"),
    "atomic semantic": ("atomic_cas", "semantic", "'seq_cst'", "'relaxed', 'acquire', 'release', 'acq_rel'"),
    "rank axis": ("rank", "axis", "1", "-1, 0"),
    "tid axis": ("tid", "axis", "3", "0, 1, 2"),
}


def causes(error):
    """The error and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def compile_failure(kernel, types, constants, target=90):
    """The errors of a compilation that must fail, outermost first."""
    with pytest.raises(CompilationError) as caught:
        triton.compile(source_of(kernel, types, constants), target=target_of(target))
    return list(causes(caught.value))


@pytest.mark.parametrize("case", CASES)
def test_wrong_arguments(case):
    function, argument, seen, allowed = CASES[case]
    errors = compile_failure(kernel, TYPES, {"CASE": case})
    named = [error for error in errors if isinstance(error, PrimitiveArgumentError)]
    assert named, "the cause is our error"
    message = str(named[0])
    for part in (f"{function}: ", argument, seen, allowed):
        assert part in message
    last_line = str(errors[0]).splitlines()[-2]
    assert f"dl.{'wait_ge' if case == 'wait ge scope' else function}(" in last_line, "the outermost error shows the user's line"
    assert isinstance(named[0], TypeError)


@pytest.mark.parametrize("reason", ["wait release", "ld release", "st acquire"])
def test_a_refused_semantic_says_why(reason):
    errors = compile_failure(kernel, TYPES, {"CASE": reason})
    assert any("is refused: it " in str(error) for error in errors)


@pytest.mark.parametrize("target", [80, 90, AMD])
def test_every_integer_is_accepted_as_a_rank(compiled, target):
    assert compiled(kernel, target, TYPES, {"CASE": "fine"})


@triton.jit
def rank_kernel(words, rank):
    dl.st(dl.symm_at(words, rank), 1)
    dl.notify(words, rank)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "i32", "u32", "i64", "u64"])
def test_rank_of_any_integer_type(compiled, dtype):
    assert compiled(rank_kernel, 90, {"words": "*i32", "rank": dtype})


@pytest.mark.parametrize("rank", [0, 1, 16])
def test_rank_that_triton_specialised_to_a_constant(compiled, rank):
    """A rank passed as an argument becomes a constexpr when it is 1."""
    assert compiled(rank_kernel, 90, {"words": "*i32"}, {"rank": rank})


@triton.jit
def thread_kernel(words):
    dl.st(words, 1)


def test_other_amd_gpus_refuse_per_thread_primitives():
    errors = compile_failure(thread_kernel, {"words": "*i32"}, {}, "gfx90a")
    assert any("st is not implemented for gfx90a; implemented for: gfx942, gfx950" in str(error) for error in errors)


@triton.jit
def signal_kernel(words, OPERATION: tl.constexpr, COMPARE: tl.constexpr):
    libshmem_device.signal_op(words, 1, OPERATION, 0)
    libshmem_device.signal_wait_until(words, COMPARE, 1)


@pytest.mark.parametrize("operation, compare, name", [(8, 0, "sig_op"), (9, 6, "cmp_")])
def test_shmem_constants_are_checked(operation, compare, name):
    errors = compile_failure(signal_kernel, {"words": "*i32"}, {"OPERATION": operation, "COMPARE": compare})
    assert any(name in str(error) for error in errors)
