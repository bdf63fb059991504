"""Kernels that are meant for GPUs only in tests and tools, compiled for a GPU here, so that a mistake does not wait for one."""

from __future__ import annotations

import pytest
import triton

from tests.gpu import (
    aot_program,
    compile_tools_program,
    lone_program,
    names_program,
    shmem_program,
    simt_program,
    stream_program,
    torch_symm_program,
)
from tests.language.extra import test_libshmem_device as shmem
from tests.ops import test_stress
from tests.primitives.compile_targets import source_of, target_of
from tests.runtime import test_attempts
from tests.tools import compile_bodies
from tests.tools.autotune import bodies, operators
from triton_dist.ops.collectives import barrier
from triton_dist.tools.doctor import measure

PRODUCT = {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp32", "K": "i32"}
TILE = {"M": 128, "N": 128, "BLOCK": 64}

KERNELS = {
    "transpose": (simt_program.transpose_kernel, {"source": "*fp32", "target": "*fp32"}, {"N": 128}),
    "product": (simt_program.product_kernel, PRODUCT, TILE),
    "beside_dot": (simt_program.beside_dot_kernel, {**PRODUCT, "bias_ptr": "*fp32"}, TILE),
    "exchange": (simt_program.exchange_kernel, {"out": "*i32"}, {}),
    "plain": (simt_program.plain_kernel, {"out": "*i32"}, {}),
    "nested": (simt_program.nested_kernel, {"out": "*i32"}, {}),
    "special_elements": (simt_program.special_elements_kernel, {"source": "*fp32", "out": "*fp32"}, {}),
    "vector_sum": (simt_program.vector_sum_kernel, {"x": "*bf16", "y": "*bf16", "out": "*bf16", "count": "i32"}, {"TILE": 1024}),
    "vector_methods": (simt_program.vector_methods_kernel, {"x": "*fp32", "out": "*fp32"}, {}),
    "shuffles": (simt_program.shuffles_kernel, {"x": "*fp64", "out": "*fp64", "amount": "i32"}, {}),
    "prefix_sum": (simt_program.prefix_sum_kernel, {"x": "*i32", "out": "*i32"}, {}),
    "votes": (simt_program.votes_kernel, {"x": "*i32", "out": "*i32"}, {}),
    "updates": (simt_program.updates_kernel, {"words": "*u64", "olds": "*u64", "values": "*u64"}, {}),
    "count": (
        simt_program.count_kernel,
        {"indices": "*i32", "out": "*i32", "lock": "*i32", "first": "*i32", "size": "i32"},
        {},
    ),
    "spin": (stream_program.spin_kernel, {"word": "*i32", "seen": "*i32", "most": "i32"}, {}),
    "release": (stream_program.release_kernel, {"word": "*i32"}, {"VALUE": 105}),
    "torch_symm_all_reduce": (
        torch_symm_program.all_reduce_kernel,
        {"buffers": "i64", "signal_pads": "i64", "result": "*fp32"},
        {"RANK": 1, "WORLD": 2, "BLOCK": 1024},
    ),
    "torch_symm_gather": (torch_symm_program.gather_kernel, {"source": "*fp32", "out": "*fp32"}, {"COUNT": 256}),
    "place without a world": (lone_program.place_kernel, {"out": "*i32"}, {}),
    "shmem without a world": (lone_program.shmem_kernel, {"out": "*i32", "pointers": "*i64"}, {}),
    "wait without a world": (lone_program.wait_kernel, {"flags": "*i32", "out": "*i32", "count": "i32"}, {}),
    "wait and region without a world": (lone_program.wait_in_region_kernel, {"flags": "*i32", "out": "*i32", "count": "i32"}, {}),
    "far without a world": (lone_program.far_kernel, {"pointer": "*i32"}, {}),
    "numbers": (names_program.thread_numbers_kernel, {"out": "*i32"}, {}),
    "order": (names_program.order_kernel, {"data": "*i32", "flag": "*i32"}, {}),
    "delay": (test_stress.delay_kernel, {"word": "*i32", "steps": "i32"}, {}),
    "push ahead": (aot_program.push_kernel, aot_program.TYPES, {"BLOCK": aot_program.BLOCK}),
    "ring ahead": (aot_program.ring_kernel, aot_program.TYPES, {"BLOCK": aot_program.BLOCK}),
    "norms": (compile_tools_program.norms_kernel, {"points": "*fp32", "out": "*fp32", "words": "*i32", "n": "i64"}, {}),
    "ping": (measure.ping_pong_kernel, {"flags": "*i32", "peer": "i32", "rounds": "i32"}, {"FIRST": True}),
    "pong": (measure.ping_pong_kernel, {"flags": "*i32", "peer": "i32", "rounds": "i32"}, {"FIRST": False}),
    "push": (measure.push_kernel, {"source": "*i32", "target": "*i32", "peer": "i32", "count": "i32"}, {"BLOCK": measure.BLOCK}),
    "barrier": (
        barrier.barrier_kernel,
        {"arrived": "*i32", "epoch": "*i32", "world_ranks": "*i32", "index": "i32", "size": "i32"},
        {},
    ),
}

_ROTATION = {"x": "*fp32", "inbox": "*fp32", "arrived": "*i32", "out": "*fp32", "count": "i32"}
KERNELS |= {
    "attempted_exchange": (test_attempts.exchange_kernel, {"words": "*i32", "wanted": "i32"}, {}),
    "attempted_barrier": (test_attempts.shmem_barrier_kernel, {"turns": "i32"}, {}),
    "tuned_send": (operators.send_kernel, _ROTATION, {"CHUNK": 64}),
    "tuned_receive": (operators.receive_kernel, {**_ROTATION, "wanted": "i32"}, {"CHUNK": 64}),
    "tuned_rotation": (bodies.rotate_kernel.fn, _ROTATION, {"CHUNK": 64, "WANTED": 1}),
    "compiled_rotation": (compile_bodies.rotate_kernel, _ROTATION, {"COUNT": 64}),
}

_BYTES = {"dest": "*u8", "source": "*u8", "words": "*i64", "out": "*u8", "to": "i32", "start": "i32", "nbytes": "i32"}
_GROUPS = {"dest": "*fp32", "source": "*fp32", "team": "i32", "count": "i32", "root": "i32"}
_BARRIER = {"slots": "*i32", "wrong": "*i32", "team": "i32", "members": "*i32"}
for _level in shmem.LEVELS:
    KERNELS |= {
        f"copy by {_level}": (shmem.copy_kernel, _BYTES, {"KIND": "put", "NBI": True, "LEVEL": _level}),
        f"put with signal by {_level}": (shmem.put_signal_kernel, _BYTES, {"NBI": False, "LEVEL": _level, "OPERATION": 10}),
        f"barrier by {_level}": (shmem.barrier_kernel, _BARRIER, {"ROUNDS": 5, "LEVEL": _level, "ALL": False, "COMPLETES": False}),
        f"broadcast by {_level}": (shmem.collective_kernel, _GROUPS, {"KIND": "broadcast", "LEVEL": _level, "TYPED": True}),
        f"fcollect by {_level}": (shmem.collective_kernel, _GROUPS, {"KIND": "fcollect", "LEVEL": _level, "TYPED": False}),
    }
KERNELS |= {
    "copy by each thread": (shmem.each_thread_kernel, {"dest": "*i32", "source": "*i32"}, {"COUNT": 100, "GET": True}),
    "signals to and fro": (shmem.ping_pong_kernel, {"word": "*i64", "seen": "*i64"}, {"ROUNDS": 20}),
    "every condition": (shmem.conditions_kernel, {"words": "*i64", "out": "*i64"}, {}),
    "ulong_put_signal": (shmem.ulong_kernel, {"dest": "*i64", "source": "*i64", "words": "*i64", "out": "*i64"}, {}),
    "p and g": (shmem.scalars_kernel, {"target": "*bf16", "source": "*bf16", "out": "*bf16"}, {"COUNT": 50}),
    "ring": (shmem.ring_kernel, {"slots": "*i32"}, {}),
    "teams": (shmem.team_kernel, {"out": "*i32", "team": "i32"}, {}),
    "remote pointers": (shmem.pointers_kernel, {"symmetric": "*i32", "out": "*i32"}, {"MULTICAST": False}),
    "stress": (shmem_program.stress_kernel, shmem_program.STRESS_TYPES, {"ROUNDS": 10, "WORDS": 1024}),
    "throughput": (shmem_program.throughput_kernel, {"dest": "*i32", "source": "*i32", "nbytes": "i64"}, {"GET": False}),
}


@pytest.mark.parametrize("name", KERNELS)
def test_compiles_for_hopper(name):
    kernel, types, constants = KERNELS[name]
    used = {argument: kind for argument, kind in types.items() if argument in kernel.arg_names}
    aligned = tuple(argument for argument, kind in used.items() if kind.startswith("*") or argument == "count")
    compiled = triton.compile(source_of(kernel, types, constants, aligned), target=target_of(90))
    ptx = compiled.asm["ptx"]
    assert compiled.asm["cubin"]
    if name == "spin":
        assert "acquire" in ptx and "bra" in ptx  # the loop is still there
    if name == "delay":
        assert "atom" in ptx and "bra" in ptx
    if name == "push":
        assert ".v4.b32" in ptx  # 128 bits a thread at a time
