"""``ModelBuilder``: the operations of a model, made one after another and run as one persistent kernel."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import CollectiveMismatchError, InvalidArgumentError
from ..runtime.address_map import rank_of
from ..runtime.preload import Launch, load
from ..runtime.symmetric import is_symmetric, symm_free, symm_zeros
from ..runtime.world import current_world
from ..tools.profiler import alloc_profiler_buffer, export_to_perfetto_trace, parse_to_tracks, reset_profiler_buffer
from .graph import Access, Operation, meeting_tiles, near
from .kernel import WAITING, mega_kernel
from .machine import Machine, check_ranks, check_warps, device_of_rank, multiprocessors, register, shared_memory, whole_number
from .schedule import Plan, make_plan
from .tasks import activation, allreduce, barrier, elementwise, flash_attention, flash_decode, linear, normalization, prefetch
from .tasks.checks import check
from .words import with_words

_RECORDS_A_TASK = 4


class ModelBuilder:
    """Joins operations of a model into one kernel, in which each tile of each operation runs as soon as what it needs is there.

    ``make_*`` appends an operation: tensors stay the caller's, are read and written by each ``run()`` and keep their addresses; so a run
    takes new inputs that were copied into them. Operations behave as if they ran one after the other, whatever tensors they share:
    ``compile()`` finds out which tiles have to wait for which. ``run()`` launches on the current stream and can be captured in a graph.

    rank, world_size: this rank's and how many there are, which run the same program. local_world_size: ranks of a node.
    num_warps: of all programs, a power of 2. enable_profiling: record what each program does when (``dump_trace``, ``get_sm_activity``).
    enable_dep_opt: False makes every tile wait for the whole operation before it. enable_runtime_scheduler: programs take tasks as they
    come, instead of the lists that ``compile()`` deals out. num_sms: programs; default is one a multiprocessor, and more is refused.
    Raises InvalidArgumentError, NotInitializedError, NoDeviceError.
    """

    def __init__(
        self,
        rank: int = 0,
        world_size: int = 1,
        local_world_size: int = 1,
        num_warps: int = 4,
        enable_profiling: bool = False,
        enable_dep_opt: bool = True,
        enable_runtime_scheduler: bool = False,
        *,
        num_sms: int | None = None,
    ) -> None:
        check_ranks(rank, world_size, local_world_size)
        self.rank, self.world_size, self.local_world_size = rank, world_size, local_world_size
        self.local_rank = rank % local_world_size
        self.num_warps = check_warps(num_warps)
        self._enable_profiling = enable_profiling
        self._in_order = not enable_dep_opt
        self._take = enable_runtime_scheduler
        most = multiprocessors()
        if num_sms is not None and not 1 <= whole_number("num_sms", num_sms) <= most:
            raise InvalidArgumentError(
                f"ModelBuilder: num_sms={num_sms}; all programs have to be on the GPU together, so pass a number from 1 to its {most}"
            )
        self.num_sms = most if num_sms is None else num_sms
        self._machine = Machine(self.num_sms, shared_memory())
        self.all_symm_tensors: list[torch.Tensor] = []
        self.profile_buf: torch.Tensor | None = None
        self._operations: list[Operation] = []
        self._plan: Plan | None = None
        self._kept: list[Any] = []
        """Plans and buffers that a captured graph may still use, until ``finalize()``."""
        self._first_of_node = rank - self.local_rank

    # Operations.

    def make_fc1(self, input: torch.Tensor, weight: torch.Tensor, output: torch.Tensor, layer_id: int = 0) -> None:
        """As ``make_linear``, under the name "mlp_fc1" in traces; so are the three below, under theirs."""
        self._linear("make_fc1", "mlp_fc1", input, weight, output, layer_id)

    def make_fc2(self, input: torch.Tensor, weight: torch.Tensor, output: torch.Tensor, layer_id: int = 0) -> None:
        self._linear("make_fc2", "mlp_fc2", input, weight, output, layer_id)

    def make_qkv_proj(self, input: torch.Tensor, weight: torch.Tensor, output: torch.Tensor, layer_id: int = 0) -> None:
        self._linear("make_qkv_proj", "qkv_proj", input, weight, output, layer_id)

    def make_o_proj(self, input: torch.Tensor, weight: torch.Tensor, output: torch.Tensor, layer_id: int = 0) -> None:
        self._linear("make_o_proj", "o_proj", input, weight, output, layer_id)

    def make_linear(self, input: torch.Tensor, weight: torch.Tensor, output: torch.Tensor, layer_id: int = 0) -> None:
        """``output = input @ weight.T``: (M, K), (N, K), (M, N), of one dtype: bf16, fp16 or fp32. Summed in fp32. output: other memory.

        All tensors here and below: contiguous, begin at a multiple of 16 bytes. Raises InvalidArgumentError, as all of these.
        layer_id: of messages alone.
        """
        self._linear("make_linear", "linear", input, weight, output, layer_id)

    def make_rms_norm(
        self, input: torch.Tensor, rms_weight: torch.Tensor, output: torch.Tensor, rms_eps: float = 1e-6, layer_id: int = 0
    ) -> None:
        """``output = input / sqrt(mean(input ** 2) + rms_eps) * rms_weight`` over the last dimension. output may be input.

        input, output: (..., columns). rms_weight: (columns,). Computed in fp32, rounded once.
        """
        self._add(normalization.rms_norm(input, rms_weight, output, rms_eps), layer_id)

    def make_add(self, lhs: torch.Tensor, rhs: torch.Tensor, output: torch.Tensor, layer_id: int = 0) -> None:
        """``output = lhs + rhs``, of one shape and dtype. output may be lhs or rhs."""
        self._add(elementwise.add(lhs, rhs, output, self.num_sms), layer_id)

    def make_silu_mul_up(self, fc1_out: torch.Tensor, act_out: torch.Tensor, layer_id: int = 0) -> None:
        """``act_out = silu(gate) * up`` for ``gate | up = fc1_out``: (rows, 2 * columns) and (rows, columns).

        Made right behind the product that gives ``fc1_out``, of 64 rows at most, it is one operation with that, which writes both.
        """
        self._add(activation.silu_mul_up(fc1_out, act_out, self.num_sms), layer_id)

    def make_flash_attn(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, output: torch.Tensor,
        sm_scale: float | None = None, soft_cap: float = 0.0, is_causal: bool = True, layer_id: int = 0,
    ) -> None:  # fmt: skip
        """Attention of all tokens. q, output: (batch, length, q_heads, head_dim). k, v: (batch, keys, kv_heads, head_dim).

        sm_scale: default ``head_dim ** -0.5``. soft_cap: scores become ``soft_cap * tanh(score / soft_cap)``; 0 leaves them. is_causal:
        token i sees keys up to ``i + keys - length``. q_heads is a multiple of kv_heads: neighbours share keys.
        """
        self._add(
            flash_attention.flash_attention(q, k, v, output, self._machine, scale=sm_scale, soft_cap=soft_cap, causal=is_causal), layer_id
        )

    def make_qkv_pack_flash_attn(
        self, qkv: torch.Tensor, output: torch.Tensor,
        sm_scale: float | None = None, soft_cap: float = 0.0, is_causal: bool = True, layer_id: int = 0,
    ) -> None:  # fmt: skip
        """``make_flash_attn`` of qkv, (batch, length, q_heads + 2 * kv_heads, head_dim): the heads of q, then of k, then of v."""
        self._add(
            flash_attention.qkv_pack_flash_attention(qkv, output, self._machine, scale=sm_scale, soft_cap=soft_cap, causal=is_causal),
            layer_id,
        )

    def make_flash_decode(
        self, query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, block_tables: torch.Tensor,
        kv_lens: torch.Tensor, output: torch.Tensor, sm_scale: float | None = None, soft_cap: float = 0.0, layer_id: int = 0,
    ) -> None:  # fmt: skip
        """Attention of one token a sequence to the keys and values of its pages, by shares of the keys; the last one puts them together.

        query: (batch, 1, q_heads, head_dim). key_cache, value_cache: (pages, page_size, kv_heads, head_dim of k and of v). block_tables:
        int32 (batch, pages a sequence): a sequence's position i is in page ``block_tables[sequence, i // page_size]``. kv_lens: int32
        (batch,), keys of each sequence, read by each run; without any, its output is 0. output: (batch, 1, q_heads, head_dim of v).
        """
        made = flash_decode.flash_decode(
            query, key_cache, value_cache, block_tables, kv_lens, output, self._machine, scale=sm_scale, soft_cap=soft_cap
        )
        self._add(made, layer_id)

    def make_qk_norm_rope_update_kvcache(
        self, qkv: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, block_tables: torch.Tensor, kv_lens: torch.Tensor,
        q_rms_weight: torch.Tensor, k_rms_weight: torch.Tensor, cos_cache: torch.Tensor, sin_cache: torch.Tensor,
        q_norm_rope: torch.Tensor, q_rms_eps: float = 1e-6, k_rms_eps: float = 1e-6, rope_theta: int = 1000000,
        skip_q_norm: bool = False, skip_k_norm: bool = False, layer_id: int = 0,
    ) -> None:  # fmt: skip
        """RMS norm of each head of q and k, their rotary embedding, and new keys and values into the pages of the caches.

        qkv: (batch, length, q_heads + 2 * kv_heads, head_dim). kv_lens: int32 (batch,), counts these tokens already: they are positions
        ``kv_lens - length`` and on; of the first ones of a sequence that has fewer, as in an empty place of a batch, q becomes 0 and
        nothing is stored in the caches. q_rms_weight, k_rms_weight: (head_dim,). cos_cache, sin_cache: fp32 (positions, head_dim), or
        (1 or batch, positions, head_dim); element i of a head's first half is rotated with element i of its second. q_norm_rope:
        (batch, length, q_heads, head_dim). Caches and tables: as in ``make_flash_decode``, one head_dim. rope_theta: not looked at, since
        the tables hold the angles.
        """
        norms = normalization.Norms(q_rms_weight, k_rms_weight, q_rms_eps, k_rms_eps, not skip_q_norm, not skip_k_norm)
        made = normalization.qk_norm_rope_update_kvcache(
            qkv, key_cache, value_cache, block_tables, kv_lens, norms, cos_cache, sin_cache, q_norm_rope, self.num_sms
        )
        self._add(made, layer_id)

    def make_qkv_pack_qk_norm_rope_split_v(
        self, qkv: torch.Tensor, kv_lens: torch.Tensor, q_rms_weight: torch.Tensor, k_rms_weight: torch.Tensor,
        cos_cache: torch.Tensor, sin_cache: torch.Tensor, q_norm_rope: torch.Tensor, k_norm_rope: torch.Tensor, v: torch.Tensor,
        q_rms_eps: float = 1e-6, k_rms_eps: float = 1e-6, layer_id: int = 0,
    ) -> None:  # fmt: skip
        """As ``make_qk_norm_rope_update_kvcache`` into tensors, (batch, length, heads, head_dim), for ``make_flash_attn``.

        kv_lens: tokens before these, which so are positions ``kv_lens`` and on.
        """
        norms = normalization.Norms(q_rms_weight, k_rms_weight, q_rms_eps, k_rms_eps)
        made = normalization.qkv_pack_qk_norm_rope_split_v(
            qkv, kv_lens, norms, cos_cache, sin_cache, q_norm_rope, k_norm_rope, v, self.num_sms
        )
        self._add(made, layer_id)

    def make_prefetch(self, weight: torch.Tensor, layer_id: int = 0) -> None:
        """Bring weight, a matrix, into the L2 cache. It waits for nothing, and runs where it stands among the operations."""
        self._add(prefetch.prefetch(weight), layer_id)

    def make_barrier_all_intra_node(self, wait_inputs: Sequence[torch.Tensor] | None = None, layer_id: int = 0) -> None:
        """The ranks of the node meet: what was done with ``wait_inputs`` before is complete on all of them afterwards.

        Every rank makes it, at the same place of its program. Without ``wait_inputs`` it orders nothing.
        """
        if isinstance(wait_inputs, torch.Tensor) or not isinstance(wait_inputs, Iterable | None):
            raise InvalidArgumentError(f"make_barrier_all_intra_node: wait_inputs has to be a list of tensors, got {wait_inputs!r}")
        inputs = list(wait_inputs or ())
        for tensor in inputs:
            if not isinstance(tensor, torch.Tensor) or not tensor.is_contiguous():
                raise InvalidArgumentError(f"make_barrier_all_intra_node: wait_inputs has to be contiguous tensors, got {tensor!r}")
        self._add(barrier.barrier(self._ranks(), inputs), layer_id)

    def make_allreduce(self, input: torch.Tensor, output: torch.Tensor, double_input_buffer: bool = False, layer_id: int = 0) -> None:
        """``output`` = sum of ``input`` over all ranks, in fp32 and in their order: the same bits on every rank.

        Every rank makes it, at the same place of its program. input: symmetric (``create_symm_tensor``, ``symm_empty``,
        ``nvshmem_create_tensor``), the same part of one tensor on all ranks, bf16, fp16 or fp32. output: of its shape, other memory. For
        the ranks of one node.

        Later operations that write ``input``, and the end of the run, wait until all ranks have read it. double_input_buffer: they do not.
        Then whoever writes ``input`` again has to come after another all-reduce or barrier that comes after this ``output``: as with two
        inputs in turn, each computed of all of the sum of the other. Within a program ``compile()`` sees to that. Between runs it is the
        caller's: what comes after ``output`` and before the next write may be in this run, in the next one, or in another program's.
        """
        if self.local_world_size != self.world_size:
            raise InvalidArgumentError(
                f"make_allreduce: {self.world_size} ranks on nodes of {self.local_world_size}; it is for the ranks of one node"
            )
        check("make_allreduce", "input", input, (None,) * max(1, input.dim()) if isinstance(input, torch.Tensor) else ())
        if self.world_size > 1 and not (is_symmetric(input) and rank_of(input.data_ptr()) == self.rank):
            raise InvalidArgumentError(
                "make_allreduce: input is no symmetric tensor of this rank; make it by create_symm_tensor or symm_empty"
            )
        if isinstance(output, torch.Tensor) and near(Access.of_all(input, 1), Access.of_all(output, 1)):
            raise InvalidArgumentError("make_allreduce: output shares memory with input, which other ranks read: pass a tensor of its own")
        block = allreduce.block_of(input.numel(), self.num_sms)
        told = self.world_size > 1 and not double_input_buffer
        self._add(allreduce.allreduce(input, output, self._ranks(), block, told=told), layer_id)

    # What is made of them.

    def create_symm_tensor(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A symmetric tensor of zeros that ``finalize()`` frees; every rank calls it. An ordinary one where there is one rank."""
        if self.world_size == 1:
            return torch.zeros(tuple(shape), dtype=dtype, device=device_of_rank())
        tensor = symm_zeros(tuple(shape), dtype, name="create_symm_tensor")
        self.all_symm_tensors.append(tensor)
        return tensor

    def get_memory_size(self) -> int:
        """Bytes of the operands and results of all operations, caches of keys and values left out: what a run has to move at least."""
        return sum(operation.nbytes for operation in self._operations)

    def reset(self) -> None:
        """Forget all operations. Symmetric tensors, and what graphs have captured, stay until ``finalize()``."""
        self._operations, self._plan = [], None

    def compile(self) -> None:
        """Find out who waits for whom, deal out the tasks, and compile the kernel. Every rank calls it; again after more operations.

        It waits for no run: what was compiled before may still run, and a graph that has captured it be replayed later.
        Raises InvalidArgumentError, and CollectiveMismatchError where ranks have made different operations.
        """
        if not self._operations:
            raise InvalidArgumentError("ModelBuilder.compile: there are no operations; call make_linear() and others first")
        self._agree_with_peers()
        # Before anything that one rank alone may fail at: all ranks allocate the words.
        operations = _joined(with_words(self._operations, self._zeros), self._machine)
        self._plan = plan = make_plan(operations, self.num_sms, device_of_rank(), in_order=self._in_order, take=self._take)
        register(operations)
        if self._enable_profiling:
            self.profile_buf = alloc_profiler_buffer((plan.tasks + 4 * plan.programs) * _RECORDS_A_TASK)
        self._kept.append((plan, self.profile_buf, operations))
        if device_of_rank().type == "cuda":
            load(self._launch(plan))

    @property
    def task_types_to_str(self) -> dict[int, str]:
        """The names of the tasks in traces, by number; "scoreboard_wait_deps" is the time before a task in which it waits."""
        return dict(enumerate(self._compiled("task_types_to_str").names))

    def run(self) -> None:
        """Run the program once, on the current stream; every rank calls it. Raises InvalidArgumentError before ``compile()``.

        One program at a time runs on a GPU: two on different streams may each keep the other's blocks from starting, and wait for ever.
        """
        plan = self._compiled("run")
        if self.profile_buf is not None:
            reset_profiler_buffer(self.profile_buf)
        self._launch(plan).run()

    def dump_trace(self, trace_file_prefix: str = "MEGA_KERNEL_TRACE") -> Path:
        """Write what the last run did when, for ui.perfetto.dev, to ``<prefix>_RANK_<rank>`` and return its path.

        The folder is that of the environment variable MEGA_KERNEL_PROFILER_DIR, or ``prof``. Needs the package perfetto.
        Raises InvalidArgumentError without ``enable_profiling``.
        """
        buffer = self._recorded("dump_trace")
        folder = Path(os.environ.get("MEGA_KERNEL_PROFILER_DIR", "prof"))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{trace_file_prefix}_RANK_{self.rank}"
        export_to_perfetto_trace(buffer, self._compiled("dump_trace").names, path)
        return path

    def get_sm_activity(self) -> float:
        """Share of the last run in which a program, on average, was at a task and did not wait. Needs ``enable_profiling``."""
        tracks = parse_to_tracks(self._recorded("get_sm_activity"))
        spans = [
            (task.type, task.start, task.start + task.duration) for track in tracks for task in track.tasks if task.duration is not None
        ]
        if not spans:
            return 0.0
        at_work = sum(end - start for kind, start, end in spans if kind != WAITING)
        whole = max(end for _, _, end in spans) - min(start for _, start, _ in spans)
        return at_work / (whole * self._compiled("get_sm_activity").programs)

    def finalize(self) -> None:
        """Free the symmetric tensors; every rank calls it, after its runs are complete. The builder is empty afterwards."""
        self.reset()
        for tensor in self.all_symm_tensors:
            symm_free(tensor)
        self.all_symm_tensors, self._kept = [], []

    # Inside.

    def _linear(self, what: str, name: str, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, layer_id: int) -> None:
        self._add(linear.linear(name, x, weight, out, self._machine, what=what), layer_id)

    def _add(self, made: Operation | list[Operation], layer_id: int) -> None:
        operations = made if isinstance(made, list) else [made]
        device = device_of_rank()
        for operation in operations:
            wrong = next((tensor for tensor in (*operation.tensors, *operation.kept) if tensor.device != device), None)
            if wrong is not None:
                raise InvalidArgumentError(
                    f"{operation.name} (layer {layer_id}): a tensor of shape {tuple(wrong.shape)} is on {wrong.device}, and kernels of "
                    f"this rank run on {device}: move it there"
                )
        self._operations = [*self._operations, *operations]
        self._plan = None

    def _ranks(self) -> barrier.Ranks:
        return barrier.Ranks(self._first_of_node, self.local_world_size, self.local_rank)

    def _compiled(self, what: str) -> Plan:
        if self._plan is None:
            raise InvalidArgumentError(f"ModelBuilder.{what}: call compile() first, and again after operations were added")
        return self._plan

    def _recorded(self, what: str) -> torch.Tensor:
        if self.profile_buf is None:
            raise InvalidArgumentError(
                f"ModelBuilder.{what}: nothing was recorded; pass enable_profiling=True, and compile() and run() first"
            )
        return self.profile_buf

    def _launch(self, plan: Plan) -> Launch:
        recorded = plan.state if self.profile_buf is None else self.profile_buf
        return Launch.of(mega_kernel, plan.programs)(
            plan.queue, plan.starts, plan.waits, plan.words, plan.state, recorded,
            KINDS=plan.kinds, TAKE=self._take, PROFILE=self.profile_buf is not None, num_warps=self.num_warps,
        )  # fmt: skip

    def _zeros(self, count: int, symmetric: bool) -> torch.Tensor:
        """int32 words of a plan, which are zero for all streams: copied, since a fill would be ordered with the current stream only."""
        if symmetric:
            return self.create_symm_tensor((count,), torch.int32)
        return torch.as_tensor(np.zeros(count, np.int32), device=device_of_rank())

    def _agree_with_peers(self) -> None:
        """Ranks wait for each other by the number of a tile, so all have to have the same ones: raises CollectiveMismatchError."""
        world = current_world()
        if self.world_size == 1 or world is None:
            return
        mine = [(operation.name, operation.tiles, *operation.agreed) for operation in self._operations]
        for rank, (theirs, programs) in enumerate(world.gather((mine, self.num_sms))):
            if (theirs, programs) != (mine, self.num_sms):
                differ = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs)))
                raise CollectiveMismatchError(
                    f"ModelBuilder.compile: rank {self.rank} has {len(mine)} operations on {self.num_sms} multiprocessors, rank {rank} has "
                    f"{len(theirs)} on {programs}; they differ from number {differ} on (name, tiles, what they sum up and where): "
                    f"{mine[differ : differ + 1]} and {theirs[differ : differ + 1]}. Every rank has to make the same operations"
                )


def _joined(operations: Sequence[Operation], machine: Machine) -> list[Operation]:
    """The operations; a sum and the norm behind it as one, and a product of few rows and the gated activation behind it."""
    made: list[Operation] = []
    for operation in operations:
        both = None
        if made:
            both = normalization.with_add(made[-1], operation) or linear.with_silu_mul_up(made[-1], operation, machine)
        # Tiles that keep apart in two operations may meet in one, where buffers share memory.
        if both is not None and meeting_tiles(both) is None:
            made[-1] = both
        else:
            made.append(operation)
    return made
