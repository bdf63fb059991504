"""How NVSHMEM is found, started and told of heap and modules; with a host library that only writes down what is called."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest
import torch
from triton import knobs

from triton_dist import errors
from triton_dist.runtime import world
from triton_dist.runtime.cuda import driver, nvshmem, nvshmem_library

HEAP = 0x1080_0020_0000


class Function:
    """One function of the fake library."""

    def __init__(self, library: FakeLibrary, name: str) -> None:
        self._library, self._name = library, name

    def __call__(self, *arguments):
        return self._library.called(self._name, arguments)


class FakeLibrary:
    """NVSHMEM's host library. status: what a function returns instead of success, by name."""

    def __init__(self, version=(3, 4, 5), **status: int) -> None:
        self.version, self.status = version, status
        self.calls: list[str] = []
        self.arguments: dict[str, tuple] = {}
        self.running = False

    def __getattr__(self, name: str) -> Function:
        if not name.startswith("nvshmem"):
            raise AttributeError(name)
        function = self.__dict__[name] = Function(self, name)
        return function

    def called(self, name: str, arguments: tuple):
        if name == "nvshmemx_vendor_get_version_info":
            for place, part in zip(arguments, self.version, strict=True):
                place._obj.value = part
            return None
        if name == "nvshmemx_init_status":
            return self.status.get(name, 2 if self.running else int("nvshmemx_hostlib_init_attr" in self.calls))
        self.calls.append(name)
        self.arguments[name] = arguments
        if name == "nvshmemx_get_uniqueid":
            arguments[0][8] = 77
        if name == "nvshmemx_hostlib_init_attr":
            self.running = "no_gpu" not in self.status
        if name == "nvshmemx_hostlib_finalize":
            self.running = False
        if name == "nvshmemx_buffer_register_symmetric":
            return self.status.get(name, HEAP + 0x7000_0000)
        return self.status.get(name, {"nvshmem_my_pe": 0, "nvshmem_n_pes": 1}.get(name, 0))


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """``fake(library, **options)`` makes a backing over a fake library; hooks and environment are as before afterwards."""
    hooks = list(knobs.runtime.kernel_load_end_hook.calls)
    (tmp_path / "libnvshmem_device.bc").write_bytes(b"BC")
    (tmp_path / "libnvshmem_host.so.3").write_bytes(b"")
    monkeypatch.setattr(nvshmem_library, "find", lambda: nvshmem_library.NvshmemFiles(tmp_path, tmp_path / "libnvshmem_host.so.3"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(driver, "granularity", lambda device: 2 << 20)
    monkeypatch.setattr(nvshmem, "_modules", [])
    monkeypatch.setattr(nvshmem, "_in_use", None)
    monkeypatch.setattr(nvshmem, "_started_here", False)
    monkeypatch.setattr(nvshmem, "_left_running", False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    for name in ("NVSHMEM_CUMEM_GRANULARITY", "NVSHMEM_CUMEM_HANDLE_TYPE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)

    def make(library, nbytes=64 << 20, others=(), together=lambda what, act: act(), gather=None):
        monkeypatch.setattr(ctypes, "CDLL", lambda path, mode=0: library)
        device, size = torch.device("cuda", 0), library.status.get("nvshmem_n_pes", 1)
        return nvshmem.NvshmemBacking(0, size, device, together, gather or (lambda value: [value, *others]), HEAP, nbytes)

    yield make
    knobs.runtime.kernel_load_end_hook.calls[:] = hooks


def with_state(*modules: int):
    """A driver for which these modules have NVSHMEM's variables."""

    def call(name, *arguments):
        if name == "cuModuleGetGlobal" and arguments[0] in modules:
            return 1, 776
        raise driver.CudaDriverError(f"{name}: not found")

    return call


def test_it_is_started_and_told_of_the_heap(fake):
    library = FakeLibrary()
    backing = fake(library)
    assert library.calls == [
        "nvshmemx_get_uniqueid",
        "nvshmemx_set_attr_uniqueid_args",
        "nvshmemx_hostlib_init_attr",
        "nvshmem_my_pe",
        "nvshmem_n_pes",
        "nvshmemx_buffer_register_symmetric",
    ]
    rank, size, identity, attributes = library.arguments["nvshmemx_set_attr_uniqueid_args"]
    words = (ctypes.c_int * 36).from_buffer_copy(attributes)
    assert (rank, size, identity[8]) == (0, 1, 77)
    assert [words[0], words[4], words[6]] == [(1 << 16) + 144, (1 << 16) + 128, (1 << 16) + 24]
    assert library.arguments["nvshmemx_buffer_register_symmetric"] == (HEAP, 64 << 20, 0)
    assert backing.distance == 0x7000_0000 and backing.version == (3, 4, 5)
    assert nvshmem.library_in_use() == backing.device_library and backing.device_library.endswith("libnvshmem_device.bc")


def test_modules_are_told_once_and_again_in_the_next_world(fake, monkeypatch):
    """The hook is added to one that is there, which still runs, and is taken away."""
    seen = []
    knobs.runtime.kernel_load_end_hook.add(lambda *arguments: seen.append(arguments[2]))
    before = list(knobs.runtime.kernel_load_end_hook.calls)
    monkeypatch.setattr(driver, "call", with_state(11, 12))
    library = FakeLibrary()
    backing = fake(library)
    for module in (11, 13, 11, None):
        knobs.runtime.kernel_load_end_hook(module, None, f"kernel of {module}", {}, "")
    assert library.calls.count("nvshmemx_cumodule_init") == 1 and len(seen) == 4
    backing.close()
    assert library.calls[-3:] == ["nvshmemx_cumodule_finalize", "nvshmemx_buffer_unregister_symmetric", "nvshmemx_hostlib_finalize"]
    assert knobs.runtime.kernel_load_end_hook.calls == before and nvshmem.library_in_use() is None
    fake(library)
    assert library.calls[-1] == "nvshmemx_cumodule_init" and library.arguments["nvshmemx_cumodule_init"] == (11,)


def test_a_world_that_has_failed_leaves_kernels_alone_and_says_why_there_is_no_other(fake):
    """NVSHMEM would wait for the other ranks, so it runs on."""
    before = list(knobs.runtime.kernel_load_end_hook.calls)
    library = FakeLibrary(nvshmem_n_pes=2)
    backing = fake(library)
    calls = list(library.calls)
    backing.abandon()
    assert nvshmem.library_in_use() is None and knobs.runtime.kernel_load_end_hook.calls == before and library.calls == calls
    with pytest.raises(nvshmem.NvshmemError, match=r'still runs .* earlier world, which failed.*new processes .*shmem="peers"'):
        fake(library)
    assert library.calls == calls


def test_a_world_of_one_rank_that_has_failed_ends_it(fake, monkeypatch):
    library = FakeLibrary()
    fake(library).abandon()
    assert library.calls[-2:] == ["nvshmemx_buffer_unregister_symmetric", "nvshmemx_hostlib_finalize"] and not library.running
    fake(library).close()
    broken = fake(library)

    def synchronize(device):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        broken.abandon()
    assert library.running and nvshmem.library_in_use() is None, "it would end the process"
    with pytest.raises(nvshmem.NvshmemError, match="earlier world, which failed"):
        fake(library)


def test_leaving_goes_on_whatever_fails(fake, monkeypatch):
    """The other ranks wait in it."""
    monkeypatch.setattr(driver, "call", with_state(11))
    library = FakeLibrary(nvshmemx_cumodule_finalize=5)
    backing = fake(library)
    knobs.runtime.kernel_load_end_hook(11, None, "kernel", {}, "")
    with pytest.raises(nvshmem.NvshmemError, match="nvshmemx_cumodule_finalize failed with status 5"):
        backing.close()
    assert not library.running
    fake(library)


@pytest.mark.parametrize("failing", ["nvshmemx_buffer_register_symmetric", "nvshmemx_cumodule_init", "nvshmem_my_pe"])
def test_a_start_that_fails_is_undone_and_may_be_tried_again(fake, monkeypatch, failing):
    before = list(knobs.runtime.kernel_load_end_hook.calls)
    monkeypatch.setattr(nvshmem, "_modules", [11, 12])
    library = FakeLibrary(**{failing: 0 if "register" in failing else 3})
    with pytest.raises(nvshmem.NvshmemError):
        fake(library)
    assert library.calls[-1] == "nvshmemx_hostlib_finalize" and not library.running
    assert nvshmem.library_in_use() is None and knobs.runtime.kernel_load_end_hook.calls == before
    del library.status[failing]
    fake(library)


@pytest.mark.parametrize("step", ["starting NVSHMEM", "registering the symmetric heap with NVSHMEM", "telling loaded kernels of NVSHMEM"])
@pytest.mark.parametrize("runs_there", [False, True])
def test_all_ranks_hear_of_a_failure_on_another_one(fake, monkeypatch, step, runs_there):
    """Each step is agreed on. Where NVSHMEM runs on all, they end it together; else this rank would wait for ever."""
    monkeypatch.setattr(nvshmem, "_modules", [11])
    library = FakeLibrary(nvshmem_n_pes=2)

    def together(what, act):
        act()
        if what == step and library.running:
            raise nvshmem.NvshmemError("rank 1: on purpose")

    def gather(value):
        return [value, value if not isinstance(value, bool) else runs_there]

    with pytest.raises(nvshmem.NvshmemError, match="on purpose"):
        fake(library, together=together, gather=gather)
    assert library.running == (not runs_there) and nvshmem.library_in_use() is None
    assert library.calls.count("nvshmemx_cumodule_init") == (step.startswith("telling"))
    assert ("nvshmemx_cumodule_finalize" in library.calls) == (step.startswith("telling") and runs_there)
    if runs_there:
        fake(library)
    else:
        with pytest.raises(nvshmem.NvshmemError, match="earlier world, which failed"):
            fake(library)


@pytest.mark.parametrize(
    "library, options, error, text",
    [
        (FakeLibrary((3, 3, 9)), {}, errors.MissingCapabilityError, r"is 3\.3\.9; 3\.4\.0 or later"),
        (FakeLibrary(), {"nbytes": 4 << 30}, errors.InvalidArgumentError, r"4294967296 bytes.*smaller heap_size"),
        (FakeLibrary(nvshmemx_init_status=2), {}, errors.InvalidArgumentError, r"started in this process by another library"),
        (FakeLibrary(nvshmemx_init_status=1), {}, errors.InvalidArgumentError, r"started in this process by another library"),
        (FakeLibrary(no_gpu=1), {}, nvshmem.NvshmemError, r"has not taken a GPU"),
        (
            FakeLibrary(nvshmemx_hostlib_init_attr=7),
            {},
            nvshmem.NvshmemError,
            r"nvshmemx_hostlib_init_attr failed with status 7.*NVSHMEM_DEBUG",
        ),
        (FakeLibrary(nvshmemx_buffer_register_symmetric=0), {}, nvshmem.NvshmemError, r"buffer_register_symmetric of \d+ bytes failed"),
        (FakeLibrary(nvshmem_my_pe=3), {}, nvshmem.NvshmemError, r"rank 0 of 1 for PE 3 of 1"),
        (FakeLibrary(), {"others": [(3, 5, 0)]}, errors.MissingCapabilityError, r"different versions of NVSHMEM"),
    ],
)
def test_what_goes_wrong_is_named(fake, library, options, error, text):
    with pytest.raises(error, match=text):
        fake(library, **options)
    assert nvshmem.library_in_use() is None


# ---------------------------------------------------------------------- files


def test_where_it_is_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("NVSHMEM_HOME", str(tmp_path))
    with pytest.raises(errors.MissingCapabilityError, match=r"no libnvshmem_host.so in .*NVSHMEM_HOME"):
        nvshmem_library.find()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libnvshmem_host.so.3").write_bytes(b"not a library")
    files = nvshmem_library.find()
    assert files.folder == tmp_path / "lib"
    with pytest.raises(errors.MissingCapabilityError, match="can't be loaded"):
        nvshmem_library.load(files)
    monkeypatch.delenv("NVSHMEM_HOME")
    monkeypatch.setattr(nvshmem_library.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(errors.MissingCapabilityError, match="pip install nvidia-nvshmem"):
        nvshmem_library.find()


def test_the_device_library_fits_the_gpu(tmp_path):
    files = nvshmem_library.NvshmemFiles(tmp_path, tmp_path / "libnvshmem_host.so.3")
    with pytest.raises(errors.MissingCapabilityError, match="no device library in bitcode for sm_90"):
        files.device_library(90)
    for name in ("libnvshmem_device.bc", "libnvshmem_device_sm_90.bc", "libnvshmem_device_sm_100.bc"):
        (tmp_path / name).write_bytes(b"BC")
    assert [files.device_library(arch).name for arch in (80, 90, 95, 120)] == [
        "libnvshmem_device.bc",
        "libnvshmem_device_sm_90.bc",
        "libnvshmem_device_sm_90.bc",
        "libnvshmem_device_sm_100.bc",
    ]


def test_the_choice_of_a_backing(monkeypatch):
    monkeypatch.delenv("TRITON_DIST_SHMEM", raising=False)
    assert world.shmem_or_default(None) == "peers" and world.shmem_or_default("nvshmem") == "nvshmem"
    monkeypatch.setenv("TRITON_DIST_SHMEM", "nvshmem")
    assert world.shmem_or_default(None) == "nvshmem" and world.shmem_or_default("peers") == "peers"
    monkeypatch.setenv("TRITON_DIST_SHMEM", "mpi")
    with pytest.raises(errors.InvalidArgumentError, match=r"TRITON_DIST_SHMEM='mpi'.*\"peers\" or \"nvshmem\""):
        world.shmem_or_default(None)


def test_numbers_of_other_teams_are_refused(monkeypatch):
    from triton_dist.runtime import team

    made = team.Team(0, (0, 2))
    here = SimpleNamespace(heap=SimpleNamespace(team_number=lambda team: 3), uses_nvshmem=True)
    monkeypatch.setattr(team, "require_world", lambda what: here)
    monkeypatch.setattr(team, "find_team", lambda group, what: made)
    with pytest.raises(errors.InvalidArgumentError, match="NVSHMEM's device functions know"):
        team.team_number(made)
    here.uses_nvshmem = False
    assert team.team_number(made) == 3
