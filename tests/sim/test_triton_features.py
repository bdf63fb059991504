"""Stock Triton around kernels on the simulator: autotuning, heuristics, warm-up, hooks, the cache, decorators."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs

import triton_dist
import triton_dist.language as dl
from triton_dist.sim.gpus import GPUS


@triton.autotune(configs=[triton.Config({"BLOCK": size}, num_warps=warps) for size in (16, 64, 256) for warps in (1, 4)], key=["count"])
@triton.jit
def tuned_kernel(x, out, count, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < count
    tl.store(out + offset, tl.load(x + offset, mask=mask) * 2, mask=mask)


def launch_tuned(count: int) -> torch.Tensor:
    x, out = torch.arange(float(count)), torch.zeros(count)
    tuned_kernel[lambda meta: (triton.cdiv(count, meta["BLOCK"]),)](x, out, count)
    return out.clone()


def test_autotune_outside_simulate():
    assert torch.equal(launch_tuned(1000), 2 * torch.arange(1000.0))
    assert tuned_kernel.best_config.kwargs["BLOCK"] in (16, 64, 256)


def test_autotune_chooses_the_same_on_every_rank_and_run():
    def run():
        tuned_kernel.cache.clear()
        out = launch_tuned(777)
        return torch.equal(out, 2 * torch.arange(777.0)), str(tuned_kernel.best_config)

    results = triton_dist.simulate(run, 3) + triton_dist.simulate(run, 3, seed=5)
    assert all(right for right, _ in results)
    assert len({config for _, config in results}) == 1


@triton.autotune(configs=[triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 32})], key=[])
@triton.heuristics({"TWICE": lambda arguments: arguments["count"] > 20})
@triton_dist.jit
def heuristic_kernel(signals, data, out, count, BLOCK: tl.constexpr, TWICE: tl.constexpr):
    token = dl.wait(signals, 1, "sys", "acquire", waitValue=1)
    source = dl.consume_token(data, token)
    for begin in range(0, count, BLOCK):
        offset = begin + tl.arange(0, BLOCK)
        value = tl.load(source + offset, mask=offset < count)
        if TWICE:
            value = value * 2
        tl.store(out + offset, value, mask=offset < count)


def test_primitives_under_autotune_and_heuristics():
    def run(count):
        signals = triton_dist.symm_full((1,), 1, torch.int32)
        data, out = torch.arange(float(count)), torch.zeros(count)
        heuristic_kernel[(1,)](signals, data, out, count)
        return out.tolist()

    assert triton_dist.simulate(run, 2, args=(10,)) == [[float(i) for i in range(10)]] * 2
    assert triton_dist.simulate(run, 2, args=(30,)) == [[2.0 * i for i in range(30)]] * 2


@triton_dist.jit(do_not_specialize=["value"], debug=True)
def options_kernel(out, value):
    tl.store(out, value)


def test_the_decorator_takes_tritons_options():
    out = torch.zeros(1, dtype=torch.int32)
    for value in (1, 16, 7):
        options_kernel[(1,)](out, value)
        assert out.item() == value
    assert isinstance(options_kernel, triton.runtime.JITFunction) and options_kernel.debug is True
    caches = [cache[0] for cache in options_kernel.device_caches.values()]
    assert sum(len(cache) for cache in caches) == 1, "do_not_specialize keeps one compiled kernel"


def test_warmup_compiles_and_does_not_run():
    out = torch.zeros(1, dtype=torch.int32)
    compiled = options_kernel.warmup(out, 3, grid=(1,))
    assert out.item() == 0 and "tt.store" in compiled.asm["ttir"]


def test_the_ranks_share_one_compiled_kernel():
    compiled = []

    def listener(*, src, metadata, metadata_group, times, cache_hit):
        compiled.append(src.name)

    @triton.jit
    def fresh_kernel(out, VALUE: tl.constexpr):
        tl.store(out, VALUE)

    def run():
        out = torch.zeros(1, dtype=torch.int32)
        fresh_kernel[(1,)](out, VALUE=5)
        return out.item()

    before, knobs.compilation.listener = knobs.compilation.listener, listener
    try:
        assert triton_dist.simulate(run, 8) == [5] * 8
    finally:
        knobs.compilation.listener = before
    assert compiled == ["fresh_kernel"]


def test_launch_hooks_fire_once_a_launch():
    seen = []
    knobs.runtime.launch_enter_hook.add(hook := lambda metadata: seen.append(metadata.get()["name"]))
    try:
        options_kernel[(1,)](torch.zeros(1, dtype=torch.int32), 2)
    finally:
        knobs.runtime.launch_enter_hook.remove(hook)
    assert seen == ["options_kernel"]


@pytest.mark.parametrize(
    "options", [{"num_ctas": 1}, {"num_stages": 5}, {"maxnreg": 64}, {"launch_cooperative_grid": True}, {"launch_pdl": True}]
)
def test_launch_options_are_taken(options):
    out = torch.zeros(1, dtype=torch.int32)
    options_kernel[(1,)](out, 9, **options)
    assert out.item() == 9


def test_a_kernel_takes_the_branches_of_the_pretended_gpu():
    @triton.jit
    def capability_kernel(out):
        if tl.target_info.cuda_capability_geq(9, 0):
            tl.store(out, 90)
        else:
            tl.store(out, 80)

    def run():
        out = torch.zeros(1, dtype=torch.int32)
        capability_kernel[(1,)](out)
        target = triton.runtime.driver.active.get_current_target()
        return out.item(), target.backend, target.arch

    assert triton_dist.simulate(run, 2, gpu="h100") == [(90, "cuda", 90)] * 2
    assert triton_dist.simulate(run, 2, gpu="a100") == [(80, "cuda", 80)] * 2


def test_a_grid_may_be_empty_or_wrong():
    out = torch.zeros(1, dtype=torch.int32)
    options_kernel[(0,)](out, 9)
    assert out.item() == 0
    with pytest.raises(triton_dist.errors.InvalidArgumentError, match="dimension x is -1"):
        options_kernel[(-1,)](out, 9)


@pytest.mark.parametrize("name", GPUS)
def test_the_driver_answers_as_the_pretended_gpu(name):
    def run():
        driver = triton.runtime.driver.active
        properties = driver.utils.get_device_properties(driver.get_current_device())
        others = [driver.utils.get_device_properties(gpu.device_id)["multiprocessor_count"] for gpu in GPUS.values()]
        return driver.get_device_capability(), properties["multiprocessor_count"], properties["max_shared_mem"], others

    gpu = GPUS[name]
    expected = (divmod(gpu.capability, 10), gpu.sm_count, gpu.max_shared_memory, [other.sm_count for other in GPUS.values()])
    assert triton_dist.simulate(run, 1, gpu=name) == [expected]


def test_the_driver_works_on_tensors_of_the_cpu():
    driver = triton.runtime.driver.active
    assert driver.is_active()
    assert driver.get_active_torch_device() == torch.device("cpu")
    assert driver.get_empty_cache_for_benchmark().device == torch.device("cpu")
    assert driver.get_current_stream(driver.get_current_device()) == 0


def test_do_bench_says_that_there_is_no_gpu_clock():
    out = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(triton_dist.errors.UnsupportedOperationError, match="do_bench"):
        triton.testing.do_bench(lambda: options_kernel[(1,)](out, 9))
    from triton_dist.sim.driver import benchmark

    assert benchmark(lambda: options_kernel[(1,)](out, 9)) > 0
