"""How ``torch.distributed`` comes to use our process groups: only while ``simulate`` runs, undone when it ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed import c10d_logger
from torch.distributed import distributed_c10d as c10d

from ..errors import InvalidArgumentError
from . import context
from .process_group import CollectiveEngine, SimProcessGroup
from .store import HostStore, wait_for


class RankWorld(c10d._World):
    """``torch.distributed``'s record of the groups that one rank is in; torch's own keeps it in module globals."""

    def __init__(self) -> None:
        super().__init__()
        self._maps: dict[str, dict] = {}
        self._group_count = 0

    def _map(self, name: str) -> dict:
        return self._maps.setdefault(name, {})

    @property
    def pg_map(self) -> dict:
        return self._map("pg_map")

    @property
    def pg_names(self) -> dict:
        return self._map("pg_names")

    @property
    def pg_group_ranks(self) -> dict:
        return self._map("pg_group_ranks")

    @property
    def pg_backend_config(self) -> dict:
        return self._map("pg_backend_config")

    @property
    def tags_to_pg(self) -> dict:
        return self._map("tags_to_pg")

    @property
    def pg_to_tag(self) -> dict:
        return self._map("pg_to_tag")

    @property
    def group_count(self) -> int:
        return self._group_count

    @group_count.setter
    def group_count(self, value: int) -> None:
        self._group_count = value


@contextlib.contextmanager
def installed(engine: CollectiveEngine) -> Iterator[None]:
    """Make ``init_process_group`` and ``new_group`` build simulated groups, in the threads of ranks.

    Replaces functions that ``torch.distributed`` looks up in its own modules (no public hook covers the backend names "nccl"
    and "gloo"), and makes its C++ table of group names one for each thread. Other threads get the original functions.
    """
    replacements = {
        (c10d, "_new_process_group_helper"): _group_maker(engine, c10d._new_process_group_helper),
        (c10d, "rendezvous"): _rendezvous(HostStore(), c10d.rendezvous),
        # A torch without NCCL has None there and warns about it.
        (c10d, "default_pg_nccl_timeout"): c10d.default_pg_nccl_timeout or c10d.default_pg_timeout,
        # Stores of torch's own, which scripts make by themselves, wait in C++.
        (c10d.Store, "wait"): _wait_of_store(c10d.Store.wait),
        (c10d.Store, "get"): _get_of_store(c10d.Store.get),
        # Called when a collective raises; for "nccl" it asks for a version that a torch without NCCL does not have.
        (c10d_logger, "_get_msg_dict"): lambda name, *args, **kwargs: {"func_name": name},
    }
    originals = {place: getattr(*place) for place in replacements}
    isolate: Any = torch._C._distributed_c10d._set_thread_isolation_mode  # type: ignore[attr-defined]
    isolate(True)
    try:
        for (module, name), value in replacements.items():
            setattr(module, name, value)
        yield
    finally:
        for (module, name), value in originals.items():
            setattr(module, name, value)
        isolate(False)


def _group_maker(engine: CollectiveEngine, original: Any) -> Any:
    """What takes the place of torch's ``_new_process_group_helper``."""

    def new_group(size: int, group_rank: int, ranks: list[int], backend: Any, store: Any, name: Any, *rest: Any, **options: Any) -> Any:
        rank = context.current()
        if rank is None:
            return original(size, group_rank, ranks, backend, store, name, *rest, **options)
        world_ranks = tuple(ranks) if ranks else tuple(range(size))
        if rank.rank not in world_ranks:
            return c10d.GroupMember.NON_GROUP_MEMBER, None
        group = SimProcessGroup(engine, engine.group(str(name), world_ranks, rank.rank), group_rank, str(backend))
        prefix_store = c10d.PrefixStore(f"{name}/", store)
        _record(group, backend, prefix_store, name, options.get("pg_tag"))
        return group, prefix_store

    return new_group


def _rendezvous(store: HostStore, original: Any) -> Any:
    """What takes the place of torch's ``rendezvous``: any URL leads to ``store``, which all ranks share."""

    def meet(url: str, rank: int = -1, world_size: int = -1, **options: Any) -> Iterator[tuple]:
        here = context.current()
        if here is None:
            yield from original(url, rank, world_size, **options)
            return
        # As the env:// rendezvous does: what the caller does not say is in the environment.
        rank = int(os.environ["RANK"]) if rank < 0 else rank
        world_size = int(os.environ["WORLD_SIZE"]) if world_size < 0 else world_size
        if (rank, world_size) != (here.rank, here.world_size):
            raise InvalidArgumentError(
                f"init_process_group was told rank {rank} of {world_size}, but this is simulated rank {here.rank} of {here.world_size}"
            )
        yield store, rank, world_size

    return meet


def _wait_of_store(original: Any) -> Any:
    """What takes the place of ``Store.wait``: the other ranks run meanwhile. There is no timeout, see ``HostStore.wait``."""

    def wait(self: Any, keys: list[str], *timeout: Any, **options: Any) -> None:
        if context.current() is None:
            original(self, keys, *timeout, **options)
        else:
            keys = list(keys)
            wait_for(lambda: f"store.wait for {[key for key in keys if not self.check([key])]}", lambda: self.check(keys))

    return wait


def _get_of_store(original: Any) -> Any:
    """What takes the place of ``Store.get``."""

    def get(self: Any, key: str) -> bytes:
        if context.current() is not None:
            wait_for(f"store.wait for {[key]}", lambda: self.check([key]))
        return original(self, key)

    return get


def leave_groups() -> None:
    """Forget this thread's groups in torch's C++ table; a rank calls it when its host function has ended."""
    c10d._unregister_all_process_groups()


def _record(group: SimProcessGroup, backend: Any, store: Any, name: Any, tag: str | None) -> None:
    """Enter a new group into this rank's world, as ``torch.distributed`` does for its own."""
    world = c10d._world
    world.pg_map[group] = (backend, store)
    world.pg_names[group] = name
    world.pg_backend_config[group] = str(c10d.BackendConfig(backend))
    c10d._register_process_group(name, group)
    if tag:
        tag = f"user:{tag}"
    else:
        world.tags_to_pg.setdefault("", []).append(group)
        tag = f"ptd:{name}"
    world.tags_to_pg.setdefault(tag, []).append(group)
    world.pg_to_tag[group] = tag
