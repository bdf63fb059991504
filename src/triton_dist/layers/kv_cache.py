"""Keys and values of the tokens that an attention layer has seen, for decoding."""

from __future__ import annotations

import torch

from ..errors import CaptureError, InvalidArgumentError
from ..ops.autocast import dtype_here
from ..ops.team import in_capture


class KVCache:
    """Of one layer on this rank: keys and values, (batch, kv heads of this rank, max_length, head_dim), and how many tokens they hold.

    length: tokens so far; an int, or with ``static`` an int64 tensor of one element on the device, so that a call can be in a CUDA graph,
    whose replay goes on where the call before has ended. A static cache is attended to in its whole length under a mask, which costs
    the more the longer it is; and tokens beyond ``max_length``, which the host can't see, are a device-side assertion.
    """

    def __init__(
        self, batch: int, kv_heads: int, max_length: int, head_dim: int, *, dtype: torch.dtype, device: torch.device, static: bool = False
    ) -> None:
        """``TPAttention.make_cache`` calls it with what the layer knows. Raises InvalidArgumentError for sizes below 1."""
        for name, value in (("batch", batch), ("max_length", max_length)):
            if not isinstance(value, int) or value < 1:
                raise InvalidArgumentError(f"KVCache: {name}={value!r} must be a positive integer")
        shape = (batch, kv_heads, max_length, head_dim)
        with torch.inference_mode(False):  # tensors of that mode could not be written to outside of it
            # Zeros: what lies behind the last token is multiplied by a weight of 0, and must not be infinite.
            self.keys = torch.zeros(shape, dtype=dtype, device=device)
            self.values = torch.zeros(shape, dtype=dtype, device=device)
            self._steps = torch.arange(max_length, device=device)
            self.length: int | torch.Tensor = torch.zeros(1, dtype=torch.int64, device=device) if static else 0

    @property
    def max_length(self) -> int:
        """Tokens that it can hold."""
        return self.keys.shape[2]

    def positions(self, count: int) -> torch.Tensor:
        """Where the next ``count`` tokens of the sequence stand, (count,) int64."""
        self._check_room(count)
        if isinstance(self.length, torch.Tensor):
            return self._steps[:count] + self.length
        return torch.arange(self.length, self.length + count, device=self.keys.device)

    def _check_room(self, count: int) -> None:
        """Raises InvalidArgumentError for more tokens than there is room for, as far as the host knows."""
        begin = 0 if isinstance(self.length, torch.Tensor) else self.length
        if begin + count > self.max_length:
            raise InvalidArgumentError(
                f"KVCache: {count} tokens more than {begin} are too many for max_length={self.max_length}; make a longer one, or reset() it"
            )

    def append(
        self, keys: torch.Tensor, values: torch.Tensor, causal: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, bool]:
        """Take the keys and values of the next tokens, (batch, kv heads, count, head_dim).

        Returns those to attend to, the mask, and whether attention is causal without one. Raises InvalidArgumentError for another batch
        and for more tokens than it can hold; CaptureError in a CUDA graph's capture unless it is static.
        """
        count = keys.shape[2]
        if keys.shape[0] != self.keys.shape[0]:
            raise InvalidArgumentError(f"KVCache: x has a batch of {keys.shape[0]}, but the cache was made for {self.keys.shape[0]}")
        heads, dim = self.keys.shape[1], self.keys.shape[3]
        if keys.shape[1] != heads or keys.shape[3] != dim or keys.dtype != dtype_here(self.keys):
            raise InvalidArgumentError(
                f"KVCache: the layer's keys are {keys.shape[1]} heads of {keys.shape[3]}, {keys.dtype}, but the cache was made for {heads} "
                f"of {dim}, {self.keys.dtype}; take one of this layer's make_cache, made after it got its dtype"
            )
        self._check_room(count)
        if isinstance(self.length, torch.Tensor):
            return self._append_static(keys, values, causal)
        if in_capture("KVCache"):
            raise CaptureError(
                "KVCache: its length is a number of the host, which a replay of the CUDA graph would not change; make the cache with "
                "make_cache(..., static=True)"
            )
        begin, end = self.length, self.length + count
        self.keys[:, :, begin:end] = keys
        self.values[:, :, begin:end] = values
        self.length = end
        mask = None
        if causal and begin and count > 1:
            mask = torch.ones(count, end, dtype=torch.bool, device=keys.device).tril(diagonal=begin)
        return self.keys[:, :, :end], self.values[:, :, :end], mask, causal and not begin

    def _append_static(
        self, keys: torch.Tensor, values: torch.Tensor, causal: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, bool]:
        assert isinstance(self.length, torch.Tensor)
        where = self.positions(keys.shape[2])
        self.keys.index_copy_(2, where, keys.to(self.keys.dtype))
        self.values.index_copy_(2, where, values.to(self.values.dtype))
        self.length += keys.shape[2]
        last = where[:, None] if causal else self.length - 1
        mask = self._steps[None, :] <= last
        return self.keys, self.values, mask.expand(keys.shape[2], -1), False

    def reset(self) -> None:
        """Forget all tokens."""
        self.length = self.length.zero_() if isinstance(self.length, torch.Tensor) else 0
