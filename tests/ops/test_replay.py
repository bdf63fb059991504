"""Which calls are replayed, with graphs that only take notes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from triton_dist.ops import replay
from triton_dist.ops import team as ops_team
from triton_dist.ops.gemm.operands import Request
from triton_dist.ops.gemm.plan import Tiles
from triton_dist.ops.replay import Replays
from triton_dist.ops.team import GrowingBuffer, Team
from triton_dist.runtime import team as runtime_team

TEAM = Team(0, (0, 2))


class Graph:
    """Notes how often it was replayed; one is captured at a time."""

    capturing = 0

    def __init__(self) -> None:
        self.replayed = 0

    def capture_begin(self, capture_error_mode: str) -> None:
        Graph.capturing += 1

    def capture_end(self) -> None:
        Graph.capturing -= 1

    def replay(self) -> None:
        self.replayed += 1


@pytest.fixture
def world(monkeypatch):
    """A world on a GPU that is not there."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    heap = SimpleNamespace(free_team=lambda world, team: None)
    context = SimpleNamespace(
        device=torch.device("cuda", 0),
        stream=7,
        workspaces={},
        world_size=4,
        rank=0,
        heap=heap,
        synchronize=lambda why: None,
        streams=SimpleNamespace(capturing=False),
    )
    for module in (replay, ops_team):
        monkeypatch.setattr(module, "require_world", lambda what: context)
    monkeypatch.setattr(runtime_team, "require_world", lambda what: context)
    return context


def test_the_second_call_is_captured_and_the_third_found(world):
    replays, queued = Replays.here("op", TEAM), []
    for _ in range(2):
        assert replays.find("key") is None
        replays.run("key", lambda: queued.append(Graph.capturing))
    assert queued == [0, 1] and replays.find("key").replayed == 1
    assert replays.find("other") is None and Replays.here("op", TEAM) is replays


def test_a_call_that_was_captured_is_not_captured_again(world):
    """Also where its key was not looked up before, since it gave no output."""
    replays, queued = Replays.here("op", TEAM), []
    for _ in range(4):
        replays.run("key", lambda: queued.append(Graph.capturing))
    assert queued == [0, 1] and replays.find("key").replayed == 3


def test_a_capture_that_fails_is_ended_and_not_kept(world):
    replays = Replays.here("op", TEAM)
    replays.run("key", lambda: None)
    with pytest.raises(ZeroDivisionError):
        replays.run("key", lambda: 1 // 0)
    assert Graph.capturing == 0 and replays.find("key") is None


def test_graphs_are_forgotten_when_a_workspace_grows(world):
    replays = Replays.here("op", TEAM)
    for _ in range(2):
        replays.run("key", lambda: None)
    assert replays.find("key") is not None
    GrowingBuffer("op", lambda size: torch.empty(size, dtype=torch.uint8)).at_least(8)
    assert replays.find("key") is None
    replays.run("key", lambda: None)
    assert replays.find("key") is None, "a first call again"


def test_graphs_go_with_their_team(world):
    """They hold addresses of the team's memory."""
    theirs, others = Replays.here("op", TEAM), Replays.here("op", Team(0, (0, 1, 2, 3)))
    for replays in (theirs, others):
        for _ in range(2):
            replays.run("key", lambda: None)
    runtime_team.free_team(TEAM)
    assert Replays.here("op", TEAM).find("key") is None
    assert Replays.here("op", Team(0, (0, 1, 2, 3))).find("key") is not None


def test_nothing_is_replayed_in_a_capture_or_when_it_is_turned_off(world, monkeypatch):
    monkeypatch.setenv("TRITON_DIST_REPLAY", "0")
    assert Replays.here("op", TEAM) is None
    monkeypatch.delenv("TRITON_DIST_REPLAY")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert Replays.here("op", TEAM) is None


def test_what_makes_calls_the_same():
    a, b, out, scale = torch.zeros(4, 8), torch.zeros(8, 4), torch.zeros(8, 4), torch.ones(1)

    def key(a=a, b=b, out=out, scales=(None, None), method="auto", tiles=None):
        request = Request(a, b, method=method, tiles=tiles, scale_a=scales[0], scale_b=scales[1])
        return request.key("ag_gemm", out)

    assert key() == key() and hash(key()) == hash(key())
    different = [
        key(a=a.clone()), key(b=b.clone()), key(out=out.clone()), key(out=out.view(4, 8)), key(b=b.t()), key(method="fused"),
        key(tiles=Tiles()), key(scales=(scale, scale)), key(a=a.view(torch.int32)),
    ]  # fmt: skip
    assert len({key(), *different}) == 1 + len(different)
    for nothing in (key(a=3), key(method=["fused"]), key(tiles=[1]), key(scales=(2.0, scale))):
        assert nothing is None


@pytest.mark.parametrize(
    ("dtype", "settings"),
    [
        (torch.float32, {"allow_tf32": (False, True)}),
        (torch.float16, {"allow_fp16_reduced_precision_reduction": (False, True), "allow_fp16_accumulation": (False, True)}),
        (torch.bfloat16, {"allow_bf16_reduced_precision_reduction": (False, True)}),
        (torch.float8_e4m3fn, {}),
    ],
)
def test_a_product_is_another_one_with_other_settings_of_the_library(dtype, settings):
    backend = torch.backends.cuda.matmul
    a = torch.zeros(4, 8).to(dtype)
    keys = set()
    for name, values in settings.items():
        before = getattr(backend, name)
        try:
            for value in values:
                setattr(backend, name, value)
                keys.add(Request(a, a).key("ag_gemm", a))
        finally:
            setattr(backend, name, before)
    assert None not in keys and len(keys) >= len(settings) + bool(settings)
    assert Request(a, a, group=Team(0, (0, 1))).key("ag_gemm", a) not in (None, Request(a, a).key("ag_gemm", a))


def test_the_precision_of_float32_is_read_whatever_sets_it():
    """torch refuses to read the older settings in a program that uses the newer ones."""
    program = (
        "import torch\n"
        "from triton_dist.ops.gemm.operands import library_modes\n"
        "seen = [library_modes(torch.float32)]\n"
        "torch.backends.cuda.matmul.fp32_precision = 'tf32'\n"
        "seen.append(library_modes(torch.float32))\n"
        "torch.set_float32_matmul_precision('highest')\n"
        "seen.append(library_modes(torch.float32))\n"
        "assert seen[0] != seen[1] != seen[2], seen"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
