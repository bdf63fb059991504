"""Which GPUs the ranks have, and whether this rank's GPU reaches the others', as far as that can be asked beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import UnreachablePeerError
from ..agreement import Gather, agreed
from . import driver


@dataclass(frozen=True)
class Gpu:
    """A GPU by names that mean the same in every process of a host, whatever CUDA_VISIBLE_DEVICES shows it. ``uuid``: in hex."""

    uuid: str
    pci_bus: str

    def __str__(self) -> str:
        return f"GPU at PCI {self.pci_bus}, UUID {self.uuid[:8]}"


def gpu_of(ordinal: int) -> Gpu:
    """The GPU that this process sees under a number."""
    device = driver.call("cuDeviceGet", ordinal)
    uuid = bytes(driver.call("cuDeviceGetUuid", device).bytes).hex()
    bus = driver.call("cuDeviceGetPCIBusId", 32, device)
    return Gpu(uuid, bytes(bus).split(b"\0")[0].decode())


def check_peers(ordinal: int, world_size: int, gather: Gather) -> list[Gpu]:
    """The GPUs of all ranks. ordinal: of this rank's GPU. Collective over all ranks.

    Raises UnreachablePeerError on every rank if one of them sees another one's GPU but has no peer access to it. Where each process is
    shown its own GPU only, that can't be asked; mapping the peers' memory finds out.
    """
    ranks = range(world_size)
    gpus = agreed(gather, ranks, "looking at the GPUs", lambda: gpu_of(ordinal))
    agreed(gather, ranks, "looking for peers", lambda: _check_visible(ordinal, gpus))
    return gpus


def _check_visible(ordinal: int, gpus: Sequence[Gpu]) -> None:
    visible = {gpu_of(number): number for number in range(driver.call("cuDeviceGetCount"))}
    own = gpu_of(ordinal)
    for rank, gpu in enumerate(gpus):
        if gpu == own or gpu not in visible:
            continue
        if not driver.call("cuDeviceCanAccessPeer", driver.call("cuDeviceGet", ordinal), driver.call("cuDeviceGet", visible[gpu])):
            raise UnreachablePeerError(f"the {own} has no peer access to rank {rank}'s ({gpu}); look at nvidia-smi topo -p2p r")
