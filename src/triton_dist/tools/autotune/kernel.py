"""What ``triton.autotune`` becomes over a kernel that communicates: in a world, all ranks choose its config together."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from triton import knobs
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.jit import JITFunction

from ...errors import InvalidArgumentError
from ...ops.collectives.barrier import barrier
from ...runtime.team import find_team
from ...runtime.world import current_world
from .communication import communicates
from .contents import Contents, symmetric_tensors
from .contextual import active
from .report import TuneReport
from .search import Options, Trial, search
from .store import Store, machine_of


def tuned_together(kernel: Any = None, *, together: bool = True, **options: Any) -> Any:
    """Decorator over ``triton.autotune``: say that all ranks choose the kernel's config together, or that each chooses its own.

    Kernels by ``triton_dist.jit`` that communicate are tuned together without it. It is for kernels by ``triton.jit``, for those that
    reach other ranks by pointers only, and for options: warmup, runs, timeout, progress as ``triton_dist.autotune`` has them.
    together: False where ranks launch the kernel on their own. Raises InvalidArgumentError.
    """
    if not isinstance(together, bool) or options.keys() - {"warmup", "runs", "timeout", "progress"}:
        raise InvalidArgumentError(f"tuned_together: together={together!r}, options {sorted(options)}; see its documentation")
    chosen = Options(**options).checked("tuned_together")

    def decorate(tuner: Any) -> TogetherAutotuner:
        if not isinstance(tuner, Autotuner):
            raise InvalidArgumentError(f"tuned_together stands over triton.autotune(...), not over {tuner!r}")
        made(tuner)
        if not isinstance(tuner, TogetherAutotuner):
            raise InvalidArgumentError(f"tuned_together: {type(tuner).__name__} is an autotuner of its own kind, not Triton's")
        tuner.together, tuner.options = together, chosen
        return tuner

    return decorate(kernel) if kernel is not None else decorate


def made(tuner: Any) -> None:
    """An Autotuner has been made over a kernel by ``triton_dist.jit``: give it the behaviour of this module. Subclasses keep theirs."""
    if type(tuner) is Autotuner:
        tuner.__class__ = TogetherAutotuner


class TogetherAutotuner(Autotuner):
    """Triton's autotuner, except in a world, over a kernel that communicates.

    There ``do_bench`` is not used, nor Triton's own cache of choices; ``cache_results`` keeps them where operators' are kept.
    together: whether ranks choose together; by default found out from the kernel. report: of the last search in a world.
    """

    together: bool | None = None
    options = Options()
    report: TuneReport | None = None

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch, with the config that was chosen for the key; the first time in a world that is a call of all ranks."""
        world, session = current_world(), active()
        if session is not None and len(self.configs) > 1 and not kwargs.get("warmup"):
            return session.launch(self, args, kwargs)
        if world is None or len(self.configs) < 2 or kwargs.get("warmup") or not self.is_together():
            return super().run(*args, **kwargs)
        key = self.key_of(args, kwargs)
        chosen = self.choices().setdefault(world, {})
        if key not in chosen:
            chosen[key] = self._find(world, key, args, kwargs)
        config = self.best_config = chosen[key]
        if config.pre_hook is not None:
            config.pre_hook({**self.named(args, kwargs), **config.all_kwargs()})
        return self.fn.run(*args, **kwargs, **config.all_kwargs())

    def is_together(self) -> bool:
        """Whether all ranks choose together."""
        if self.together is None:
            self.together = communicates(self._kernel())
        return self.together

    def _kernel(self) -> JITFunction:
        kernel = self.fn
        while not isinstance(kernel, JITFunction):
            kernel = kernel.fn
        return kernel

    def choices(self) -> weakref.WeakKeyDictionary[Any, dict[Any, Config]]:
        """What was chosen, by world and key."""
        # There is no constructor of this class: an Autotuner became one.
        if "choices_by_world" not in vars(self):
            self.choices_by_world: weakref.WeakKeyDictionary[Any, dict[Any, Config]] = weakref.WeakKeyDictionary()
        return self.choices_by_world

    def key_of(self, args: tuple, kwargs: dict[str, Any]) -> tuple:
        """As Triton's: the values of the key's arguments, and the dtypes of all."""
        named = {name: value for name, value in self.named(args, kwargs).items() if name in self.arg_names}
        values = [named[name] for name in self.keys if name in named]
        return (*values, *(str(value.dtype) for value in named.values() if hasattr(value, "dtype")))

    def named(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a launch by name."""
        return {**dict(zip(self.arg_names, args, strict=False)), **kwargs}

    def _find(self, world: Any, key: tuple, args: tuple, kwargs: dict[str, Any]) -> Config:
        what, team = self.base_fn.__name__, find_team(None, f"triton.autotune of {self.base_fn.__name__}")
        named = self.named(args, kwargs)
        conflicts = {name for config in self.configs for name in config.kwargs} & kwargs.keys()
        if conflicts:
            raise InvalidArgumentError(f"{what}: {', '.join(conflicts)} is given, and is in the configs; leave one of them out")
        known: dict[str, Config] = {}
        contents: list[Contents] = []

        def labels() -> list[str]:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            for config in self.prune_configs(kwargs):
                label = str(config)
                same = sum(known_label.partition(" #")[0] == label for known_label in known)
                known[f"{label} #{same + 1}" if same else label] = config  # they differ in a hook
            return list(known)

        def put_back() -> None:
            for each in contents:
                each.put_back()
            if not self.user_defined_pre_hook:
                for name in self.reset_to_zero:
                    if named.get(name) is not None:
                        named[name].zero_()

        def trial(label: str) -> Trial:
            if not contents:
                restored = [] if self.user_defined_pre_hook else [named[name] for name in self.restore_value if named.get(name) is not None]
                contents.append(Contents([*symmetric_tensors(named), *restored]))
            return self._trial(label, known[label], args, kwargs, named, put_back)

        def store(own: Sequence[str]) -> Store:
            facts = {"what": what, "source": self._kernel().cache_key, "key": str(key), "configs": "\n".join(own), "team": str(team.size)}
            return Store(f"{self.base_fn.__module__}.{what}", facts | machine_of(world))

        keeps = self.cache_results and not any(config.pre_hook for config in self.configs)
        report = search(what, str(key), team, self.options, labels, trial, store if keeps else None)
        if contents:
            put_back()
            if self.user_defined_pre_hook:
                self.pre_hook({**named, **known[report.chosen].all_kwargs()}, reset_only=True)
            barrier(team)
        self.tell(report, key, known)
        return known[report.chosen]

    def _trial(
        self, label: str, config: Config, args: tuple, kwargs: dict[str, Any], named: dict[str, Any], put_back: Callable[[], None]
    ) -> Trial:
        everything = {**named, **config.all_kwargs()}

        def prepare() -> None:
            put_back()
            if config.pre_hook is not None:
                config.pre_hook(everything)
            if self.user_defined_pre_hook:
                self.pre_hook(everything)

        def call() -> None:
            try:
                self.fn.run(*args, **kwargs, **config.all_kwargs())
            except Exception as error:
                if self.user_defined_post_hook:
                    self.post_hook(everything, exception=error)
                raise

        def clean() -> None:
            if self.user_defined_post_hook:
                self.post_hook(everything, exception=None)

        return Trial(label, call, prepare, clean)

    def tell(self, report: TuneReport, key: tuple, known: dict[str, Config]) -> None:
        """Leave behind what Triton's autotuner does, for whoever looks at it."""
        self.report = report
        self.bench_time = report.seconds
        self.cache[key] = known[report.chosen]
        times = {row.label: float("inf") if row.milliseconds is None else row.milliseconds for row in report.rows}
        self.configs_timings = {config: [times[label]] * 3 for label, config in known.items()}
        listener = getattr(knobs.autotuning, "listener", None)
        if listener is not None:
            listener(
                fn=self._kernel(), key=key, best_config=known[report.chosen], configs_timings=self.configs_timings,
                duration=None if report.cached else report.seconds, cache_hit=report.cached,
            )  # fmt: skip
