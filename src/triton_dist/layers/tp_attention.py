"""Attention that is split over the ranks of a group by heads: q, k and v by columns, in one product, and the output projection by rows.

Sequence parallel: AG+GEMM gives each rank its heads of all tokens, GEMM+RS gives it its tokens of the result. Replicated: all ranks have
all tokens, as in decoding. In between is torch's ``scaled_dot_product_attention``, of this rank's heads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from ..errors import InvalidArgumentError
from ..ops.autocast import in_dtype
from ..ops.gemm.gradients import wants_gradient
from ..ops.rotation import rotary
from ..ops.tensors import check_tensor
from .kv_cache import KVCache
from .parallel_linear import ColumnParallelLinear, RowParallelLinear, as_rows, hooked
from .placement import Placement, check_full_state

_COLUMNS = ("q_proj", "k_proj", "v_proj")


class TPAttention(nn.Module):
    """Multi-head attention, grouped-query too, with optional rotary embeddings and cache. Every rank of the group makes it and calls it.

    Parameters are ``qkv.weight`` (q, k, v), ``qkv.bias``, ``out.weight`` and ``out.bias``, of this rank's heads; ``load_full_state`` and
    ``from_linear`` take full weights.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        *,
        head_dim: int | None = None,
        bias: bool = False,
        out_bias: bool | None = None,
        causal: bool = True,
        rope_theta: float | None = None,
        sequence_parallel: bool = True,
        group: object = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """hidden_size, num_heads: of all ranks. num_kv_heads: heads of k and v, each for ``num_heads / num_kv_heads`` of q in a row; None:
        as many. The group's size divides both. head_dim: None is ``hidden_size / num_heads``. bias: of q, k and v; out_bias: of the output
        projection, None: as ``bias``. causal: a token attends to itself and those before it.
        rope_theta: the base of rotary embeddings of q and k (halves of a head rotated against each other, as in Llama), None for none.
        The others: as for ``TPMLP``. Raises InvalidArgumentError, NotInTeamError, NotInitializedError.
        """
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        _check_heads(hidden_size, num_heads, num_kv_heads, head_dim)
        self.head_dim = hidden_size // num_heads if head_dim is None else head_dim
        self.hidden_size, self.num_heads, self.num_kv_heads = hidden_size, num_heads, num_kv_heads
        self.causal, self.rope_theta = causal, rope_theta
        self._kept_frequencies: torch.Tensor | None = None
        if rope_theta is not None and (not rope_theta > 0 or self.head_dim % 2):
            raise InvalidArgumentError(
                f"TPAttention: rope_theta={rope_theta} with head_dim={self.head_dim}: the base has to be above 0, and the head's size even"
            )
        placement = Placement("TPAttention", group)
        self.own_heads = placement.share("TPAttention", "num_heads", num_heads)
        self.own_kv_heads = placement.share("TPAttention", "num_kv_heads", num_kv_heads)
        sections = tuple(heads * self.head_dim for heads in (num_heads, num_kv_heads, num_kv_heads))
        options: dict[str, Any] = {"sequence_parallel": sequence_parallel, "group": group, "device": device, "dtype": dtype}
        self.qkv = ColumnParallelLinear(hidden_size, sections, bias=bias, **options)
        self.out = RowParallelLinear(sections[0], hidden_size, bias=bias if out_bias is None else out_bias, **options)

    def forward(
        self,
        x: torch.Tensor,
        *,
        positions: torch.Tensor | None = None,
        cache: KVCache | None = None,
        sequence_parallel: bool | None = None,
    ) -> torch.Tensor:
        """x: (tokens, hidden_size) or (tokens, batch, hidden_size), sequence first: this rank's tokens, the same number on every rank, the
        first rank's first; in the replicated form all tokens. Returns the like.

        positions: (tokens of all ranks,), where the tokens stand for the rotary embedding; None: from 0, or behind the cache's. cache: from
        ``make_cache``; takes the tokens' keys and values, and the tokens attend to all that it holds; without autograd only.
        In stream order of the current stream; for CUDA graphs as ``TPMLP``. Raises InvalidArgumentError, and what the operators and the
        cache raise.
        """
        if not isinstance(x, torch.Tensor) or x.dim() not in (2, 3):
            seen = tuple(x.shape) if isinstance(x, torch.Tensor) else repr(x)
            raise InvalidArgumentError(f"TPAttention: x is {seen}; it has to be (tokens, hidden_size) or (tokens, batch, hidden_size)")
        qkv, out = self.qkv, self.out
        keeps = torch.compiler.is_compiling() or hooked(qkv) or wants_gradient(x, qkv.weight, qkv.bias, out.weight, out.bias)
        if cache is not None and wants_gradient(x, qkv.weight, qkv.bias, out.weight, out.bias):
            raise InvalidArgumentError("TPAttention: a cache keeps no gradients; call it under torch.no_grad(), or without cache=")
        if positions is not None:
            _check_positions(positions, x.shape[0] * (qkv.placement.size if self._scattered(sequence_parallel) else 1))
        turns = self.rope_theta is not None
        # The rotation adds the bias.
        memory = None if keeps else self._memory(x, sequence_parallel)
        product = qkv(x, sequence_parallel=sequence_parallel, with_bias=not turns, out=memory)
        tokens, batch = product.shape[0], x.shape[1] if x.dim() == 3 else 1
        if turns:
            product = self._rotated(product, positions, cache, in_place=not keeps)
        heads = product.view(tokens, batch, self.own_heads + 2 * self.own_kv_heads, self.head_dim)
        q, k, v = heads.split([self.own_heads, self.own_kv_heads, self.own_kv_heads], dim=2)
        context = self._attend(q.permute(1, 2, 0, 3), k.permute(1, 2, 0, 3), v.permute(1, 2, 0, 3), cache)
        rows = context.permute(2, 0, 1, 3).reshape(*product.shape[:-1], self.own_heads * self.head_dim)
        return out(rows, sequence_parallel=sequence_parallel)

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cache: KVCache | None) -> torch.Tensor:
        """(batch, heads, tokens, head_dim) each; of q's shape."""
        mask, causal = None, self.causal
        if cache is not None:
            k, v, mask, causal = cache.append(k, v, causal)
        grouped = self.own_heads != self.own_kv_heads
        if grouped and q.shape[2] == 1:
            # The heads of a group as so many tokens, which all see the same: kernels that do not know of groups take that, with a mask too.
            one = q.reshape(q.shape[0], self.own_kv_heads, -1, self.head_dim)
            return scaled_dot_product_attention(one, k, v, attn_mask=mask).reshape(q.shape)
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=grouped)

    def _rotated(self, product: torch.Tensor, positions: torch.Tensor | None, cache: KVCache | None, in_place: bool) -> torch.Tensor:
        """q, k and v, (tokens, ..., columns), with their bias, q and k rotated."""
        tokens, device = product.shape[0], product.device
        frequencies = self._frequencies(device)
        bias = in_dtype(self.qkv.bias, product.dtype)
        if positions is None:
            positions = torch.arange(tokens, device=device) if cache is None else cache.positions(tokens)
        rotated = self.own_heads + self.own_kv_heads
        if torch.compiler.is_compiling():
            product = product if bias is None else product + bias
            return _rotated_by_torch(product, positions, frequencies, rotated)
        rows = product.view(-1, product.shape[-1])
        positions = positions.to(torch.int64).contiguous()
        made = rotary(rows, positions, frequencies, rotated=rotated, bias=bias, out=rows if in_place else None)
        return made.view(product.shape)

    def _frequencies(self, device: torch.device) -> torch.Tensor:
        """Of the pairs of a head's elements, (head_dim / 2,) fp32; kept, not a buffer, as it must not follow the layer's dtype."""
        if torch.compiler.is_compiling():
            return self._made_frequencies(device)
        found = self._kept_frequencies
        if found is None or found.device != device:
            with torch.inference_mode(False):  # autograd keeps no tensor of that mode
                found = self._kept_frequencies = self._made_frequencies(device)
        return found

    def _made_frequencies(self, device: torch.device) -> torch.Tensor:
        exponents = torch.arange(0, self.head_dim, 2, device=device, dtype=torch.float32) / self.head_dim
        return torch.pow(float(self.rope_theta or 1.0), -exponents)

    def _memory(self, x: torch.Tensor, sequence_parallel: bool | None) -> torch.Tensor:
        """Where a call without autograd puts q, k and v."""
        qkv, rows = self.qkv, as_rows("TPAttention", x, self.qkv.weight)
        every = rows.shape[0] * (qkv.placement.size if self._scattered(sequence_parallel) else 1)
        return qkv.placement.scratch("hidden", (every, qkv.weight.shape[0]), rows.dtype)

    def _scattered(self, sequence_parallel: bool | None) -> bool:
        return self.qkv.sequence_parallel if sequence_parallel is None else sequence_parallel

    def make_cache(self, batch: int, max_length: int, *, static: bool = False) -> KVCache:
        """An empty cache for this rank's heads. static: for calls in a CUDA graph, see ``KVCache``."""
        weight = self.qkv.weight
        options: dict[str, Any] = {"dtype": weight.dtype, "device": weight.device, "static": static}
        return KVCache(batch, self.own_kv_heads, max_length, self.head_dim, **options)

    @classmethod
    def from_linear(cls, *, q: nn.Linear, k: nn.Linear, v: nn.Linear, out: nn.Linear, num_heads: int, **options: Any) -> TPAttention:
        """The layer with this rank's heads of full layers, the same on all ranks.

        options: as for the constructor, without what the layers say (``num_kv_heads``, ``head_dim``, biases, and ``dtype`` unless it is to
        differ from q's).
        """
        given = {"q": q, "k": k, "v": v, "out": out}
        for name, layer in given.items():
            if not isinstance(layer, nn.Linear):
                raise InvalidArgumentError(f"TPAttention.from_linear: {name} has to be an nn.Linear, not {type(layer).__name__}")
        if len({layer.bias is not None for layer in (q, k, v)}) > 1:
            raise InvalidArgumentError(
                "TPAttention.from_linear: some of q, k and v have a bias and some have none; give the others one of zeros"
            )
        if num_heads < 1 or q.out_features % num_heads or k.out_features % (q.out_features // num_heads):
            raise InvalidArgumentError(
                f"TPAttention.from_linear: q has {q.out_features} and k {k.out_features} output features, which are not whole heads for "
                f"num_heads={num_heads}"
            )
        head_dim = q.out_features // num_heads
        options = {"dtype": q.weight.dtype, **options}
        biases: dict[str, Any] = {"bias": q.bias is not None, "out_bias": out.bias is not None}
        made = cls(q.in_features, num_heads, k.out_features // head_dim, head_dim=head_dim, **biases, **options)
        names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "out": "o_proj"}
        made.load_full_state(
            {f"{names[name]}.{kind}": value.detach() for name, layer in given.items() for kind, value in layer.named_parameters()}
        )
        return made

    def load_full_state(self, state: dict[str, torch.Tensor]) -> None:
        """Take this rank's heads of full weights: ``q_proj.weight``, ``k_proj``, ``v_proj`` and ``o_proj``, and their ``.bias``.

        They have the shapes of ``nn.Linear``'s, and may be on any device and of any dtype. Raises InvalidArgumentError for other names or
        shapes.
        """
        check_full_state("TPAttention.load_full_state", state, self._full_shapes())
        biases = [state[f"{name}.bias"] for name in _COLUMNS] if self.qkv.bias is not None else ()
        self.qkv.load_full([state[f"{name}.weight"] for name in _COLUMNS], biases)
        self.out.load_full(state["o_proj.weight"], state.get("o_proj.bias"))

    def full_state(self) -> dict[str, torch.Tensor]:
        """What ``load_full_state`` takes, gathered from all ranks; every rank of the group calls it."""
        weights, biases = self.qkv.full()
        weight, bias = self.out.full()
        state = {f"{name}.weight": value for name, value in zip((*_COLUMNS, "o_proj"), (*weights, weight), strict=True)}
        state |= {f"{name}.bias": value for name, value in zip(_COLUMNS, biases, strict=bool(biases))}
        return state if bias is None else state | {"o_proj.bias": bias}

    def _full_shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {}
        for name, section in zip(_COLUMNS, self.qkv.sections, strict=True):
            shapes[f"{name}.weight"] = (section, self.hidden_size)
            shapes |= {f"{name}.bias": (section,)} if self.qkv.bias is not None else {}
        shapes["o_proj.weight"] = (self.hidden_size, self.qkv.sections[0])
        return shapes | ({"o_proj.bias": (self.hidden_size,)} if self.out.bias is not None else {})

    def extra_repr(self) -> str:
        """For ``print``."""
        return f"num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}, head_dim={self.head_dim}, causal={self.causal}"


def _rotated_by_torch(product: torch.Tensor, positions: torch.Tensor, frequencies: torch.Tensor, rotated: int) -> torch.Tensor:
    """As ``rotary``, by operators that a compiler fuses. product: (tokens, ..., columns)."""
    angles = positions.to(torch.float32)[:, None] * frequencies
    angles = angles.view(angles.shape[0], *[1] * (product.dim() - 1), angles.shape[1])
    heads = product.unflatten(-1, (-1, 2 * frequencies.shape[0]))
    first, second = heads[..., :rotated, :].float().chunk(2, dim=-1)
    turned = torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], dim=-1)
    return torch.cat([turned.to(product.dtype), heads[..., rotated:, :]], dim=-2).flatten(-2)


def _check_positions(positions: object, tokens: int) -> None:
    """Raises InvalidArgumentError."""
    positions = check_tensor("TPAttention", "positions", positions)
    if tuple(positions.shape) != (tokens,) or positions.is_floating_point() or positions.dtype == torch.bool:
        raise InvalidArgumentError(
            f"TPAttention: positions are {tuple(positions.shape)} {positions.dtype}; there is an integer for each of {tokens} tokens"
        )


def _check_heads(hidden_size: int, num_heads: int, num_kv_heads: int, head_dim: int | None) -> None:
    """Raises InvalidArgumentError for numbers of heads that do not go together."""
    for name, value in (("num_heads", num_heads), ("num_kv_heads", num_kv_heads)):
        if not isinstance(value, int) or value < 1:
            raise InvalidArgumentError(f"TPAttention: {name}={value!r} must be a positive integer")
    if num_heads % num_kv_heads:
        raise InvalidArgumentError(f"TPAttention: num_heads={num_heads} is not a multiple of num_kv_heads={num_kv_heads}")
    if head_dim is None and hidden_size % num_heads:
        raise InvalidArgumentError(f"TPAttention: hidden_size={hidden_size} is not a multiple of num_heads={num_heads}; pass head_dim=")
