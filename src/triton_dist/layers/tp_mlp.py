"""An MLP that is split over the ranks of a group: gate and up projections by columns, in one product, and the down projection by rows.

In the sequence-parallel form AG+GEMM, the activation and GEMM+RS follow each other on one stream. Between the three nothing is allocated,
copied or added by an operator of its own: the first product goes into memory that all layers share, its bias is added by the
activation's kernel, and that writes where the second product reads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..errors import InvalidArgumentError
from ..ops.activation import activate, check_function
from ..ops.autocast import in_dtype
from ..ops.gemm.gradients import wants_gradient
from .parallel_linear import ColumnParallelLinear, RowParallelLinear, as_rows, hooked
from .placement import Placement, check_full_state


class TPMLP(nn.Module):
    """``down(f(gate(x)) * up(x))``, or ``down(f(up(x)))`` without gates. Every rank of the group makes it and calls it.

    Parameters are ``gate_up.weight`` (gates first), ``gate_up.bias``, ``down.weight`` and ``down.bias``, of this rank; ``load_full_state``
    and ``from_linear`` take full weights.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        *,
        activation: str = "silu",
        gated: bool = True,
        bias: bool = False,
        sequence_parallel: bool = True,
        group: object = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """hidden_size, intermediate_size: of all ranks; the group's size divides the second. activation: "silu" (with gates: SwiGLU),
        "gelu", "gelu_tanh" or "relu". bias: of all projections.
        sequence_parallel: whether ``forward`` gets and gives this rank's rows, or all rows; a call may choose otherwise.
        group: a process group, a Team, a DeviceMesh with one dimension, (mesh, name of a dimension), or None for all ranks.
        device: by default this rank's. dtype: fp32, fp16 or bf16.
        Raises InvalidArgumentError, NotInTeamError, NotInitializedError.
        """
        super().__init__()
        check_function("TPMLP", activation)
        Placement("TPMLP", group).share("TPMLP", "intermediate_size", intermediate_size)
        self.activation, self.gated = activation, gated
        self.hidden_size, self.intermediate_size = hidden_size, intermediate_size
        options: dict[str, Any] = {"bias": bias, "sequence_parallel": sequence_parallel, "group": group, "device": device, "dtype": dtype}
        self.gate_up = ColumnParallelLinear(hidden_size, (intermediate_size,) * (2 if gated else 1), **options)
        self.down = RowParallelLinear(intermediate_size, hidden_size, **options)

    def forward(self, x: torch.Tensor, *, sequence_parallel: bool | None = None, out: torch.Tensor | None = None) -> torch.Tensor:
        """x: (M, ..., hidden_size): this rank's rows, the same number on every rank; in the replicated form all rows. Returns the like.

        out: a matrix for the rows of the result, contiguous, without autograd only; with the same x and out again and again a call takes
        the host the least. Allocated if None.
        In stream order of the current stream. Without autograd the first call of a size on a stream allocates, so it comes before a
        CUDA graph's capture there. Autograd and ``torch.compile`` go through it. Raises InvalidArgumentError, and what the operators raise.
        """
        gate_up, down = self.gate_up, self.down
        rows = as_rows("TPMLP", x, gate_up.weight)
        hidden = activated = None
        keeps = wants_gradient(x, gate_up.weight, gate_up.bias, down.weight, down.bias) or hooked(gate_up, down)
        if not torch.compiler.is_compiling() and not keeps:
            placement, scattered = gate_up.placement, gate_up.sequence_parallel if sequence_parallel is None else sequence_parallel
            every = rows.shape[0] * placement.size if scattered else rows.shape[0]
            hidden = placement.scratch("hidden", (every, gate_up.weight.shape[0]), rows.dtype)
            activated = placement.scratch("activated", (every, down.weight.shape[1]), rows.dtype)
            # Before the operator makes one: it replays a call that it knows by its addresses, without a look at anything else.
            out = torch.empty_like(rows, memory_format=torch.contiguous_format) if out is None else out
        hidden = gate_up(rows, sequence_parallel=sequence_parallel, with_bias=False, out=hidden)
        activated = activate(hidden, in_dtype(gate_up.bias, rows.dtype), function=self.activation, gated=self.gated, out=activated)
        result = down(activated, sequence_parallel=sequence_parallel, out=out)
        return result if x.dim() == 2 else result.view(x.shape)

    @classmethod
    def from_linear(cls, *, up: nn.Linear, down: nn.Linear, gate: nn.Linear | None = None, **options: Any) -> TPMLP:
        """The layer with this rank's part of full layers, the same on all ranks; gated if ``gate`` is given.

        options: as for the constructor, without sizes, ``gated``, ``bias`` and, unless it is to differ from ``up``'s, ``dtype``.
        """
        given = {"up": up, "down": down, **({} if gate is None else {"gate": gate})}
        for name, layer in given.items():
            if not isinstance(layer, nn.Linear):
                raise InvalidArgumentError(f"TPMLP.from_linear: {name} has to be an nn.Linear, not {type(layer).__name__}")
        biased = {layer.bias is not None for layer in given.values()}
        if len(biased) > 1:
            raise InvalidArgumentError("TPMLP.from_linear: some of the layers have a bias and some have none; give the others one of zeros")
        options = {"dtype": up.weight.dtype, **options}
        made = cls(up.in_features, up.out_features, gated=gate is not None, bias=biased.pop(), **options)
        made.load_full_state(
            {f"{name}_proj.{kind}": value.detach() for name, layer in given.items() for kind, value in layer.named_parameters()}
        )
        return made

    def load_full_state(self, state: dict[str, torch.Tensor]) -> None:
        """Take this rank's part of full weights: ``gate_proj.weight`` (if gated), ``up_proj.weight``, ``down_proj.weight``, and ``.bias``.

        They have the shapes of ``nn.Linear``'s, and may be on any device and of any dtype. Raises InvalidArgumentError for other names or
        shapes.
        """
        check_full_state("TPMLP.load_full_state", state, self._full_shapes())
        columns = ("gate_proj", "up_proj") if self.gated else ("up_proj",)
        biased = self.down.bias is not None
        self.gate_up.load_full([state[f"{name}.weight"] for name in columns], [state[f"{name}.bias"] for name in columns] if biased else ())
        self.down.load_full(state["down_proj.weight"], state.get("down_proj.bias"))

    def full_state(self) -> dict[str, torch.Tensor]:
        """What ``load_full_state`` takes, gathered from all ranks; every rank of the group calls it."""
        weights, biases = self.gate_up.full()
        weight, bias = self.down.full()
        columns = ("gate_proj", "up_proj") if self.gated else ("up_proj",)
        state = {f"{name}.weight": value for name, value in zip((*columns, "down_proj"), (*weights, weight), strict=True)}
        if bias is not None:
            state |= {f"{name}.bias": value for name, value in zip((*columns, "down_proj"), (*biases, bias), strict=True)}
        return state

    def _full_shapes(self) -> dict[str, tuple[int, ...]]:
        columns = ("gate_proj", "up_proj") if self.gated else ("up_proj",)
        shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": (self.intermediate_size, self.hidden_size) for name in columns}
        shapes["down_proj.weight"] = (self.hidden_size, self.intermediate_size)
        if self.down.bias is not None:
            shapes |= {f"{name}.bias": (self.intermediate_size,) for name in columns} | {"down_proj.bias": (self.hidden_size,)}
        return shapes

    def extra_repr(self) -> str:
        """For ``print``."""
        return f"activation={self.activation}, gated={self.gated}"
