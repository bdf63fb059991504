"""What host code asks about its GPU: the pretended one's answers, and the named error where there is none."""

import pytest
import torch

from triton_dist import utils
from triton_dist.errors import InvalidArgumentError, NoDeviceError
from triton_dist.runtime.cuda import nvml
from triton_dist.sim.simulate import simulate

QUERIES = (
    "get_current_gpu_clock_rate_in_khz",
    "get_device_max_shared_memory_size",
    "get_device_property",
    "get_max_gpu_clock_rate_in_khz",
    "get_numa_node",
)
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@pytest.mark.parametrize("gpu, clock, shared, count", [("h100", 1_980_000, 232_448, 132), ("a100", 1_410_000, 166_912, 108)])
def test_the_simulator_answers_for_its_gpu(gpu, clock, shared, count):
    def fn():
        assert utils.is_cuda() and not utils.is_hip()
        assert utils.has_tma() == (gpu == "h100")
        assert utils.has_fullmesh_nvlink() and utils.supports_p2p_native_atomic()
        assert utils.is_nvshmem_multimem_supported() == utils.has_tma()
        return [getattr(utils, query)(1) for query in QUERIES] + [getattr(utils, query)() for query in QUERIES]

    for answers in simulate(fn, 2, gpu=gpu):
        for now, size, properties, highest, numa in (answers[:5], answers[5:]):
            assert (now, size, highest, numa) == (clock, shared, clock, 0)
            assert properties.multi_processor_count == count and properties.shared_memory_per_block_optin == shared


@pytest.mark.parametrize("query", QUERIES)
def test_a_gpu_that_the_node_does_not_have(query):
    def fn():
        for device_id in (2, -1):
            with pytest.raises(InvalidArgumentError, match="this node has 2 GPUs"):
                getattr(utils, query)(device_id)

    simulate(fn, 4, num_nodes=2)


@no_gpu
@pytest.mark.parametrize("query", [*QUERIES, "has_fullmesh_nvlink", "supports_p2p_native_atomic"])
def test_without_any_gpu_the_error_says_what_to_do(query):
    with pytest.raises(NoDeviceError, match=rf"{query}.*torch sees no GPU here; .*triton-dist run"):
        getattr(utils, query)()


@no_gpu
def test_without_any_gpu_the_yes_or_no_questions_are_answered():
    assert not utils.is_cuda() and not utils.is_hip() and not utils.has_tma() and not utils.is_nvshmem_multimem_supported()


def test_the_host_processor_has_a_name():
    assert utils.get_cpu_info_linux() is None or utils.get_cpu_info_linux().strip()


class FakeNvml:
    """Answers as libnvidia-ml.so would; every function is a number of NVML's error otherwise."""

    def __init__(self):
        self.nvmlErrorString = lambda code: b"no such GPU"
        self.nvmlErrorString.restype = None

    def nvmlDeviceGetHandleByUUID(self, uuid, handle):
        return 0 if uuid == b"GPU-12" else 6

    def nvmlDeviceGetMaxClockInfo(self, handle, domain, out):
        out._obj.value = 1980 if domain == nvml.SM_CLOCK else 1
        return 0

    def nvmlDeviceGetClockInfo(self, handle, domain, out):
        out._obj.value = 345
        return 0

    def nvmlDeviceGetPciInfo_v3(self, handle, out):
        out._obj.domain, out._obj.bus, out._obj.device = 1, 0x18, 3
        return 0


def test_nvml_is_asked_for_the_gpu_with_torchs_uuid(monkeypatch):
    uuid = ["12"]
    monkeypatch.setattr(nvml, "library", FakeNvml)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: type("Properties", (), {"uuid": uuid[0]}))
    assert (nvml.clock_khz(0, maximum=True), nvml.clock_khz(0, maximum=False)) == (1_980_000, 345_000)
    assert nvml.pci_bus_id(0) == "0001:18:03.0"
    uuid[0] = "13"
    with pytest.raises(NoDeviceError, match=r"nvmlDeviceGetHandleByUUID: no such GPU \(6\)"):
        nvml.clock_khz(0, maximum=True)
