"""From the numbers that a waiting kernel records to the user's line, on every Triton version's PTX."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path

import pytest
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.language.extra import libshmem_device
from triton_dist.runtime import wait_places
from triton_dist.runtime.wait_layout import MARKER
from triton_dist.runtime.wait_places import Frame, Place, find_places, places_in, texts_in_cache, texts_in_process

TYPES = {"words": "*i32", "out": "*i32", "n": "i32"}


@triton.jit
def wait_for_one(words):
    return dl.wait_ge(words, 1, "sys", "acquire", 7)  # in wait_for_one


@triton.jit
def wait_further_on(words):
    x = tl.load(words + 77)
    return wait_for_one(words + x)  # in wait_further_on


@triton.jit
def all_kinds_kernel(words, out, n):
    dl.wait(words, 1, "sys", "acquire")  # first
    dl.wait(words + 1, 1, "sys", "acquire")  # second of the same signature
    dl.wait_eq(words, n, "sys", "acquire")  # eq
    dl.wait_ge(words, 1, "sys", "acquire")  # ge
    dl.wait_ge(words, 1, "sys", "acquire")  # ge again
    libshmem_device.signal_wait_until(words, libshmem_device.NVSHMEM_CMP_GE, 3)  # shmem
    for i in range(n):
        dl.wait_lt(words + i, 1, "gpu", "acquire")  # loop
    wait_for_one(words)  # function
    wait_further_on(words)  # function in function
    tl.store(out, 1)


@triton.jit
def unrolled_kernel(words, out, n):
    for i in tl.static_range(3):
        dl.wait_ge(words + i, 1, "sys", "acquire")  # unrolled, first
        tl.store(out + i, 1)
        dl.wait_ge(words + i + 10, 1, "sys", "acquire")  # unrolled, second


@triton.jit
def unrolled_calls_kernel(words, out, n):
    for i in tl.static_range(2):
        wait_for_one(words + i)  # unrolled call, first
        tl.store(out + i, 1)
        wait_for_one(words + i + 10)  # unrolled call, second


@triton.jit(noinline=True)
def wait_not_inlined(words):
    dl.wait(words, 1, "sys", "acquire")  # not inlined
    tl.store(words + 1, 0)


@triton.jit
def calling_kernel(words, out, n):
    wait_not_inlined(words)


def line_of(comment):
    lines = inspect.getsource(inspect.getmodule(line_of)).splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {comment}"))


def places_of(compiled, kernel, arch=90, **options):
    """All places of the kernel's waits, by the number of the wait."""
    found = places_in(compiled(kernel, arch, TYPES, **options)["ptx"])
    assert len({hash_ for hash_, _ in found}) == 1
    return [found[key] for key in sorted(found, key=lambda key: key[1])]


@pytest.mark.parametrize("arch", (80, 90, 100))
def test_every_kind_of_wait_has_its_line(compiled, arch):
    places = places_of(compiled, all_kinds_kernel, arch)
    assert all(len(candidates) == 1 for candidates in places)
    found = [place for (place,) in places]
    assert all(place.kernel == "all_kinds_kernel" for place in found)
    assert all(os.path.samefile(place.frames[0].file, __file__) for place in found)
    lines = [tuple(frame.line for frame in place.frames) for place in found]
    one = line_of("in wait_for_one")
    assert sorted(lines) == sorted(
        [
            (line_of("first"),),
            (line_of("second of the same signature"),),
            (line_of("eq"),),
            (line_of("ge"),),
            (line_of("ge again"),),
            (line_of("shmem"),),
            (line_of("loop"),),
            (line_of("function"), one),
            (line_of("function in function"), line_of("in wait_further_on"), one),
        ]
    )


def test_copies_of_an_unrolled_loop_have_their_lines(compiled):
    first, second = line_of("unrolled, first"), line_of("unrolled, second")
    lines = [place.frames[0].line for (place,) in places_of(compiled, unrolled_kernel)]
    assert lines == [first, second] * 3


def test_copies_of_calls_have_their_lines_or_both(compiled):
    """3.9's line directives don't tell the later copies of two calls of one function apart; the right line is among those named."""
    first, second = line_of("unrolled call, first"), line_of("unrolled call, second")
    places = places_of(compiled, unrolled_calls_kernel)
    assert len(places) == 4
    for candidates, right in zip(places, [first, second] * 2, strict=True):
        lines = [place.frames[0].line for place in candidates]
        assert right in lines and set(lines) <= {first, second}
        assert all(place.frames[-1].line == line_of("in wait_for_one") for place in candidates)
    assert all(len(candidates) == 1 for candidates in places[:2])


def test_a_function_that_is_not_inlined_names_the_kernel_and_its_own_line(compiled):
    ((place,),) = places_of(compiled, calling_kernel)
    assert place.kernel == "calling_kernel"
    assert [frame.line for frame in place.frames] == [line_of("not inlined")]


@pytest.mark.parametrize("wait", ["coordinate", "row"])
def test_copies_in_partitions_of_warps_have_their_line(compiled, wait):
    import test_warp_specialization as specialized

    constants = {"WAIT": wait, "COUNT": 1, "SIGNAL": "none", "STORE": "descriptor", "FLATTEN": True}
    text = compiled(specialized.gemm_kernel, 100, specialized.TYPES, constants, specialized.ALIGNED, **specialized.OPTIONS)["ptx"]
    found = places_in(text)
    assert found and len(found) == text.count("ld.acquire.sys")
    lines = inspect.getsource(specialized).splitlines()
    for (place,) in found.values():
        assert "dl.wait(words + row" in lines[place.frames[0].line - 1]


def test_a_kernel_without_line_information_still_has_a_name(compiled):
    text = compiled(unrolled_kernel, 90, TYPES)["ptx"]
    bare = "\n".join(line for line in text.splitlines() if not re.match(r"\s*\.(loc|file)", line))
    for (place,) in places_in(bare).values():
        assert place == Place("unrolled_kernel", ())
        assert str(place) == "unrolled_kernel (compiled without line information)"


def test_text_of_a_place(compiled):
    texts = {str(place) for candidates in places_of(compiled, all_kinds_kernel) for place in candidates}
    outer, middle, inner = line_of("function in function"), line_of("in wait_further_on"), line_of("in wait_for_one")
    file = wait_places.places_in(compiled(all_kinds_kernel, 90, TYPES)["ptx"]).popitem()[1][0].frames[0].file
    assert f"all_kinds_kernel at {file}:{line_of('first')}" in texts
    assert f"all_kinds_kernel at {file}:{outer}, in wait_further_on at {file}:{middle}, in wait_for_one at {file}:{inner}" in texts
    assert str(Place("k", (Frame("/no/such/file.py", 3), Frame("/no/such/file.py", 9)))).endswith("in a function at /no/such/file.py:9")


def test_kernels_are_found_in_the_cache_directory(compiled):
    """As another process finds them: by nothing but the numbers."""
    wanted = list(places_in(compiled(all_kinds_kernel, 90, TYPES)["ptx"]))
    directory = triton.knobs.cache.dir
    found = find_places(wanted, texts_in_cache(Path(directory)))
    assert set(found) == set(wanted)
    assert find_places([(1, 1)], texts_in_cache(Path(directory))) == {}
    assert find_places([(1, 1)], texts_in_cache(Path(directory) / "missing")) == {}


def test_kernels_are_found_in_the_process(compiled):
    from compile_targets import source_of, target_of

    kernel = triton.compile(source_of(unrolled_kernel, TYPES, {}), target=target_of(90))
    wanted = list(places_in(kernel.asm["ptx"]))
    assert set(find_places(wanted, texts_in_process())) == set(wanted)


def test_no_more_texts_are_read_than_needed(compiled):
    text = compiled(unrolled_kernel, 90, TYPES)["ptx"]
    wanted = list(places_in(text))

    def texts():
        yield f"{MARKER} of another kernel"
        yield text
        raise AssertionError("all are found")

    assert set(find_places(wanted, texts())) == set(wanted)
    assert find_places([], texts()) == {}
