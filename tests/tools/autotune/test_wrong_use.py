"""What tuned operators are called with and kept as: methods, arguments by position, wrong arguments, identities, damaged files."""

from __future__ import annotations

import json
import warnings

import pytest
import torch
import triton.language as tl

import triton_dist
from triton_dist import errors, tune
from triton_dist.autotuner import contextual_autotune
from triton_dist.tools.autotune.identity import identity_of


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_DIR", str(tmp_path))
    return tmp_path


def on_two(function, *args):
    return triton_dist.simulate(function, 2, args=args)


class Model:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    @triton_dist.autotune([{"bias": 1}, {"bias": 2}], key=["x"])
    def run(self, x, bias):
        return self.factor * x + 0 * bias

    @contextual_autotune()
    def contextual(self, x):
        return self.factor * x

    @staticmethod
    @triton_dist.autotune([{"bias": 1}, {"bias": 2}], key=["x"])
    def alone(x, bias):
        return x + 0 * bias

    @tune.autotune([{"bias": 1}, {"bias": 2}], key_fn=lambda self, x: x)
    def by_its_other_name(self, x, bias):
        return self.factor * x + 0 * bias


def test_methods():
    def run():
        model = Model(3)
        results = [model.run(5), model.run(x=5), Model.run(model, 5), model.run(5, 2), model.contextual(5), model.by_its_other_name(5)]
        assert model.run.reports and Model.run.tune(model, 5).chosen in ("bias=1", "bias=2")
        return [*results, model.alone(15)]

    assert on_two(run) == [[15] * 7] * 2


calls: list[tuple] = []


@triton_dist.autotune(lambda *args, **kwargs: [{"first": 1, "second": 2}, {"first": 3, "second": 4}], key=["x"])
def from_function(x, first, second=0):
    calls.append((x, first, second))


@triton_dist.autotune([{"first": 1, "second": 2}, {"first": 3, "second": 4}], key=["x"])
def from_list(x, first, second=0):
    calls.append((x, first, second))


@tune.autotune([{"first": 1, "second": 2}, {"first": 3, "second": 4}], lambda x, **_: x)
def by_other_name(x, first, second=0):
    calls.append((x, first, second))


@pytest.mark.parametrize("operator", [from_function, from_list, by_other_name])
def test_a_call_that_gives_what_is_tuned(operator):
    def run():
        calls.clear()
        operator(0, 7, 8), operator(0, 7, second=8), operator(0, first=7, second=8)
        return list(calls)

    assert triton_dist.simulate(run, 1) == [[(0, 7, 8)] * 3]


@pytest.mark.parametrize("operator", [from_function, from_list])
@pytest.mark.parametrize("arguments", [(0, 7), (), (0, 1, 2, 3)])
def test_calls_that_give_too_little_or_too_much(operator, arguments):
    def run():
        calls.clear()
        with pytest.raises(errors.InvalidArgumentError, match=operator.what):
            operator(*arguments)
        return list(calls)

    assert triton_dist.simulate(run, 1) == [[]], "nothing is tried"


def test_values_given_in_part():
    def run():
        by_other_name(0, 5, autotune=False)
        with pytest.raises(errors.InvalidArgumentError, match="autotune=False, but first has no default"):
            by_other_name(0, autotune=False)
        with pytest.raises(errors.InvalidArgumentError, match="second is given, but first has no default"):
            by_other_name(0, second=5)
        with pytest.raises(errors.InvalidArgumentError, match="first is given, which is what is tuned"):
            from_list.tune(0, 1)

    triton_dist.simulate(run, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: triton_dist.autotune([{"a": 1}], key=None),
        lambda: triton_dist.autotune([{"a": 1}], key=5),
        lambda: triton_dist.autotune([{"a": 1}], key="x"),
        lambda: triton_dist.autotune([{"a": 1}], key=[1]),
        lambda: triton_dist.autotune([{"a": 1}], restore=None),
        lambda: triton_dist.autotune([{"a": 1}], restore=5),
        lambda: triton_dist.autotune([{"a": 1}], restore="x"),
        lambda: tune.autotune(None, lambda x: x),
        lambda: tune.autotune([], lambda x: x),
        lambda: tune.autotune({"a": 1}, lambda x: x),
        lambda: tune.autotune([{"a": 1}], None),
        lambda: tune.autotune([{"a": 1}], lambda x: x, 5),
    ],
)
def test_wrong_arguments_of_decorators(make):
    with pytest.raises(errors.InvalidArgumentError, match="autotune: "):
        make()


def made(slow, default=1):
    @triton_dist.autotune([{"method": "a"}, {"method": "b"}])
    def operator(x, method, weight=default):
        if method == slow:
            raise RuntimeError("this one does not work")
        return method

    return operator


def test_operators_of_one_source_that_close_over_others():
    """Each is tried by itself, in this process and from the disk."""

    def run():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.AutotuneWarning)
            return [made(slow)(0) for slow in ("a", "b", "a", "b")]

    for _ in range(2):
        assert on_two(run) == [["b", "a"] * 2] * 2


def test_identities():
    def closing(value):
        return lambda x: (x, value)

    def default(value):
        def function(x, y=value): ...

        return function

    for make in (closing, default):
        values = [1, 1.5, "text", (1, 2), [1, 2], {"a": 1}, torch.float16, tl.float16, None, made, torch, closing(1), closing(2), torch.add]
        texts = [identity_of(make(value)) for value in values]
        assert None not in texts and len(set(texts)) == len(texts)
        assert texts == [identity_of(make(value)) for value in values]
        assert identity_of(make(torch.ones(3))) is None and identity_of(make(object())) is None
    unknown: dict = {}
    exec("def function(x): ...", unknown)  # noqa: S102
    assert identity_of(unknown["function"]) is None


def test_what_has_no_identity_is_not_kept(folder):
    def run():
        weights = torch.ones(3)

        @triton_dist.autotune([{"bias": 1}, {"bias": 2}])
        def operator(x, bias):
            return x + float(weights.sum()) + 0 * bias

        return operator(1.0)

    assert on_two(run) == [4.0] * 2 and not list(folder.rglob("*.json"))


@triton_dist.autotune([{"bias": 1}, {"bias": 2}])
def kept(x, bias):
    return x + 0 * bias


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "[" * 100_000,
        lambda text: text.replace('"world_size": 2', '"world_size": Infinity'),
        lambda text: text.replace('"seconds": ', '"seconds": NaN, "other": '),
        lambda text: text.replace('"milliseconds": ', '"milliseconds": NaN, "other": '),
        lambda text: text.replace('"milliseconds": ', '"milliseconds": -1, "other": '),
        lambda text: text.replace('"milliseconds": ', '"milliseconds": true, "other": '),
        lambda text: text.replace('"reason": null', '"reason": 5'),
        lambda text: text.replace('"chosen": ', '"chosen": 3, "other": '),
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
    ],
)
def test_damaged_files(folder, damage):
    assert on_two(kept, 1) == [1, 1]
    (path,) = folder.rglob("*.json")
    sound = path.read_text()
    path.write_text(damage(sound))
    assert path.read_text() != sound
    kept.reports.clear()
    with pytest.warns(errors.AutotuneCacheWarning, match="is tuned again"):
        assert on_two(kept, 1) == [1, 1]
    assert json.loads(path.read_text())["chosen"] == json.loads(sound)["chosen"]
    assert [row for report in kept.reports.values() for row in report.table().splitlines()]


def test_a_folder_of_nobody(monkeypatch):
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_DIR", "~nosuchuser/x")
    with pytest.raises(errors.AutotuneError, match="TRITON_DIST_AUTOTUNE_DIR=~nosuchuser/x"):
        on_two(kept, 1)


def test_a_warning_names_the_line_that_called():
    def run():
        return made("a")(0)

    with pytest.warns(errors.AutotuneWarning) as caught:
        on_two(run)
    assert {warning.filename for warning in caught if warning.category is errors.AutotuneWarning} == {__file__}


@triton_dist.autotune([{"bias": 1}, {"bias": 2}, {"bias": 3}], prune=lambda configs, _: configs[: 3 - triton_dist.rank()])
def fewer(x, bias): ...


@triton_dist.autotune([{"bias": 1}, {"bias": 2}], prune=lambda configs, _: configs[:: 1 - 2 * triton_dist.rank()])
def turned(x, bias): ...


@pytest.mark.parametrize(("operator", "why"), [(fewer, "only on rank 0: bias=3"), (turned, "the same in another order")])
def test_ranks_that_would_try_others(operator, why):
    with pytest.raises(errors.AutotuneMismatchError, match=why):
        on_two(operator, 1)
