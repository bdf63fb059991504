"""Two nodes: a peer on the other one is reached by puts and signals only."""

import os

import nvshmem.core
import torch
import triton

import triton_dist.language as dl
from triton_dist.utils import finalize_distributed, initialize_distributed, nvshmem_barrier_all_on_stream


@triton.jit
def notify_kernel(signals, peer):
    dl.notify(signals + dl.rank(), peer, signal=5, sig_op="set", comm_scope="inter_node")


rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
local_world_size = int(os.environ["LOCAL_WORLD_SIZE"])
initialize_distributed()
assert torch.cuda.current_device() == int(os.environ["LOCAL_RANK"]) == rank % local_world_size
assert (local_world_size, torch.cuda.device_count(), int(os.environ["NNODES"])) == (2, 2, world_size // 2)
far = (rank + local_world_size) % world_size
inbox, signals = nvshmem.core.tensor((4,), torch.int64), nvshmem.core.tensor((world_size,), torch.int64)
inbox.zero_(), signals.zero_()
nvshmem_barrier_all_on_stream()
assert nvshmem.bindings.ptr(inbox.data_ptr(), far) == 0 != nvshmem.bindings.ptr(inbox.data_ptr(), rank ^ 1)
assert nvshmem.core.team_n_pes(nvshmem.core.Teams.TEAM_NODE) == 2
try:
    nvshmem.core.get_peer_tensor(inbox, far)
except Exception as error:
    assert type(error).__name__ == "UnreachablePeerError", error
else:
    raise AssertionError("a direct pointer to another node")
nvshmem.core.put(inbox, torch.full((4,), rank, device="cuda"), far)
notify_kernel[(1,)](signals, far)
nvshmem_barrier_all_on_stream()
assert inbox.tolist() == [far] * 4 and signals[far].item() == 5
print(f"rank {rank} heard from rank {far}")
finalize_distributed()
