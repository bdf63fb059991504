"""What a worker process does around its jobs, on each kind of machine."""

from __future__ import annotations

import contextlib
import gc
import os


class Processes:
    """Plain processes on the CPU that talk through gloo: no world of triton_dist. For the tests of the pool itself."""

    def enter(self) -> None:
        """Before the first job; all workers together."""
        import torch.distributed as dist

        dist.init_process_group("gloo")

    def settle(self) -> None:
        """After each job; raises if this process can't take another one."""
        gc.collect()

    def leave(self) -> None:
        """After the last job; all workers together."""
        import torch.distributed as dist

        dist.destroy_process_group()


class Gpus:
    """A world of triton_dist on GPUs that stays from job to job."""

    def enter(self) -> None:
        import torch

        import triton_dist

        if not torch.cuda.is_available():  # or the ranks would be CPU processes
            raise triton_dist.errors.NotInitializedError("there is no GPU here")
        triton_dist.initialize(heap_size=int(os.environ.get("TRITON_DIST_HEAP_SIZE", str(1 << 30))))

    def settle(self) -> None:
        import torch

        gc.collect()
        torch.cuda.synchronize()

    def leave(self) -> None:
        import triton_dist

        triton_dist.finalize()


class CpuRanks:
    """A world of triton_dist of CPU processes, that stays from job to job; a job that ends in an error leaves it for a new one."""

    def enter(self) -> None:
        import triton_dist

        triton_dist.initialize(heap_size=128 << 20)

    def settle(self) -> None:
        import triton_dist
        from triton_dist.errors import TritonDistError

        gc.collect()
        try:
            triton_dist.synchronize()
        except Exception:
            with contextlib.suppress(TritonDistError, RuntimeError):
                triton_dist.finalize()
            self.enter()

    def leave(self) -> None:
        import triton_dist

        triton_dist.finalize()
