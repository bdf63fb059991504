"""``tt.atomic_load``, ``tt.atomic_store`` and ``tt.atomic_poll`` of Triton 3.9 as text in generic form, so that every version runs them."""

from __future__ import annotations

import pytest
import torch

from triton_dist.errors import DeadlockError, UnsupportedOperationError
from triton_dist.sim.kernel import load_kernel
from triton_dist.sim.launch import KernelLaunch
from triton_dist.sim.machine import Machine

POLLS = """
    %words = "tt.splat"(%flags) : (!tt.ptr<i32>) -> tensor<4x!tt.ptr<i32>>
    %places = "tt.addptr"(%words, %offsets) : (tensor<4x!tt.ptr<i32>>, tensor<4xi32>) -> tensor<4x!tt.ptr<i32>>
    %seen = "tt.atomic_poll"(%flags, %one) <{scope = 3 : i32, sem = 2 : i32}> : (!tt.ptr<i32>, i32) -> i1
    %late = "tt.atomic_poll"(%flags, %seven, %time) <{scope = 3 : i32, sem = 2 : i32}> : (!tt.ptr<i32>, i32, i64) -> i1
    %some = "tt.atomic_poll"(%places, %offsets, %time) <{scope = 1 : i32, sem = 2 : i32}>
        : (tensor<4x!tt.ptr<i32>>, tensor<4xi32>, i64) -> tensor<4xi1>
    %first = "arith.extui"(%seen) : (i1) -> i32
    %second = "arith.extui"(%late) : (i1) -> i32
    %third = "arith.extui"(%some) : (tensor<4xi1>) -> tensor<4xi32>
    "tt.store"(%out, %first) : (!tt.ptr<i32>, i32) -> ()
    %out1 = "tt.addptr"(%out, %one) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
    "tt.store"(%out1, %second) : (!tt.ptr<i32>, i32) -> ()
    %out2 = "tt.addptr"(%out1, %one) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
    %targets = "tt.splat"(%out2) : (!tt.ptr<i32>) -> tensor<4x!tt.ptr<i32>>
    %target = "tt.addptr"(%targets, %offsets) : (tensor<4x!tt.ptr<i32>>, tensor<4xi32>) -> tensor<4x!tt.ptr<i32>>
    "tt.store"(%target, %third) : (tensor<4x!tt.ptr<i32>>, tensor<4xi32>) -> ()
"""
STORE_ONE = """
    "tt.atomic_store"(%flags, %one, %yes) <{scope = 1 : i32, sem = 3 : i32}> : (!tt.ptr<i32>, i32, i1) -> ()
    "tt.atomic_store"(%flags, %seven, %no) <{scope = 1 : i32, sem = 3 : i32}> : (!tt.ptr<i32>, i32, i1) -> ()
"""
LOADS = """
    %word = "tt.atomic_load"(%flags, %yes) <{scope = 1 : i32, sem = 2 : i32}> : (!tt.ptr<i32>, i1) -> i32
    %off = "tt.atomic_load"(%flags, %no) <{scope = 1 : i32, sem = 2 : i32}> : (!tt.ptr<i32>, i1) -> i32
    %words = "tt.splat"(%flags) : (!tt.ptr<i32>) -> tensor<4x!tt.ptr<i32>>
    %places = "tt.addptr"(%words, %offsets) : (tensor<4x!tt.ptr<i32>>, tensor<4xi32>) -> tensor<4x!tt.ptr<i32>>
    %limit = "arith.constant"() <{value = dense<2> : tensor<4xi32>}> : () -> tensor<4xi32>
    %mask = "arith.cmpi"(%offsets, %limit) <{predicate = 2 : i64}> : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
    %tile = "tt.atomic_load"(%places, %mask) <{scope = 1 : i32, sem = 2 : i32}> : (tensor<4x!tt.ptr<i32>>, tensor<4xi1>) -> tensor<4xi32>
    "tt.store"(%out, %word) : (!tt.ptr<i32>, i32) -> ()
    %out1 = "tt.addptr"(%out, %one) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
    "tt.store"(%out1, %off) : (!tt.ptr<i32>, i32) -> ()
    %out2 = "tt.addptr"(%out1, %one) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
    %targets = "tt.splat"(%out2) : (!tt.ptr<i32>) -> tensor<4x!tt.ptr<i32>>
    %target = "tt.addptr"(%targets, %offsets) : (tensor<4x!tt.ptr<i32>>, tensor<4xi32>) -> tensor<4x!tt.ptr<i32>>
    "tt.store"(%target, %tile) : (tensor<4x!tt.ptr<i32>>, tensor<4xi32>) -> ()
"""


def launch(machine: Machine, stream: int, body: str, flags: torch.Tensor, out: torch.Tensor) -> None:
    """Queue a kernel ``(flags, out)`` of one program whose body is ``body``."""
    text = f"""
"builtin.module"() ({{
  "tt.func"() <{{function_type = () -> (), sym_name = "kernel", sym_visibility = "public"}}> ({{
  ^bb0(%flags: !tt.ptr<i32> loc(unknown), %out: !tt.ptr<i32> loc(unknown)):
    %offsets = "tt.make_range"() <{{end = 4 : i32, start = 0 : i32}}> : () -> tensor<4xi32>
    %one = "arith.constant"() <{{value = 1 : i32}}> : () -> i32
    %seven = "arith.constant"() <{{value = 7 : i32}}> : () -> i32
    %time = "arith.constant"() <{{value = 5000 : i64}}> : () -> i64
    %yes = "arith.constant"() <{{value = true}}> : () -> i1
    %no = "arith.constant"() <{{value = false}}> : () -> i1
    {body}
    "tt.return"() : () -> () loc(unknown)
  }}) : () -> () loc(unknown)
}}) : () -> () loc(unknown)
"""
    kernel = load_kernel(text.encode(), "kernel", 128)
    for name, tensor in (("flags", flags), ("out", out)):
        machine.memory.register(tensor, name=name)
    machine.submit(0, stream, KernelLaunch(kernel, (1, 1, 1), [flags.data_ptr(), out.data_ptr()], (flags, out), machine.memory))


@pytest.mark.parametrize("seed", range(4))
def test_a_poll_ends_when_the_word_has_the_value_or_its_time_is_over(seed):
    machine = Machine(1, seed=seed)
    flags, out = torch.tensor([0, 1, 0, 3], dtype=torch.int32), torch.full((6,), -1, dtype=torch.int32)
    launch(machine, 0, POLLS, flags, out)
    launch(machine, machine.new_stream(0), STORE_ONE, flags, out)
    machine.run()
    assert flags[0] == 1  # the masked store of 7 did not happen
    assert out.tolist() == [1, 0, 0, 1, 0, 1]


def test_a_poll_without_a_time_that_nobody_ends_is_a_deadlock():
    machine = Machine(1)
    launch(machine, 0, POLLS, torch.zeros(4, dtype=torch.int32), torch.zeros(6, dtype=torch.int32))
    with pytest.raises(DeadlockError, match=r"waits for flags\[0\] == 1; it is 0; nobody wrote it"):
        machine.run()


def test_masked_words_load_as_zero():
    machine = Machine(1)
    flags, out = torch.tensor([5, 6, 7, 8], dtype=torch.int32), torch.full((6,), -1, dtype=torch.int32)
    launch(machine, 0, LOADS, flags, out)
    machine.run()
    assert out.tolist() == [5, 0, 5, 6, 0, 0]


@pytest.mark.parametrize("precision", [5, 99])
def test_a_precision_of_a_later_triton_is_an_error_and_no_wrong_number(precision):
    body = """
    %zero = "arith.constant"() <{value = dense<0.0> : tensor<16x16xf32>}> : () -> tensor<16x16xf32>
    %product = "tt.dot"(%zero, %zero, %zero) <{inputPrecision = NUMBER : i32, maxNumImpreciseAcc = 0 : i32}>
        : (tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    """
    machine = Machine(1)
    words = torch.zeros(4, dtype=torch.int32)
    launch(machine, 0, body.replace("NUMBER", str(precision)), words, words)
    with pytest.raises(UnsupportedOperationError, match=f"precision number {precision}"):
        machine.run()
