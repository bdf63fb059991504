"""A script on simulated ranks: the process that this owns is made to look like one of a torchrun job with GPUs, to each rank."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import Any

from ...errors import InvalidArgumentError, SimulationError
from ...profiler_utils import PERF_ITERS
from ...sim import context
from ...sim.cuda_shim import torch_cuda
from ...sim.cuda_shim.streams import cuda_device
from ...sim.cuda_shim.tensors import DeviceMode
from ...sim.simulate import simulate
from . import plain_jit
from .options import Options
from .script import PrefixedOutput, RankModules, Script

_local = threading.local()
"""Of a rank's thread: ``at_exit``, what its script wants called at its end."""


def run(path: str, arguments: Sequence[str], options: Options) -> int:
    """Run a script on simulated ranks and return its exit code: 0, what a rank gave to ``sys.exit``, or 1 for an exception.

    What went wrong is printed: a report of the simulator as it is, any other exception with its traceback. A wrong option or script
    raises InvalidArgumentError.
    """
    script = Script(path, arguments)
    try:
        run_once(script, options)
    except SystemExit as request:
        return _exit_code(request.code)
    except SimulationError as error:
        print("".join(traceback.format_exception_only(error)), file=sys.stderr, end="")
        return 1
    except KeyboardInterrupt:
        return 130
    except BaseException as error:  # whatever the script raised
        if isinstance(error, InvalidArgumentError) and from_the_script(error, path) is None:
            raise
        print_error(error, path)
        return 1
    return 0


def run_once(script: Script, options: Options, **more: Any) -> None:
    """Run a script on simulated ranks, and raise what ``simulate`` raises. more: further arguments of ``simulate``, such as ``check``."""
    with looks_like_cuda(os.path.dirname(os.path.abspath(script.path))), _environment(options):
        simulate(
            lambda: _rank_main(script, options.prefix),
            options.ranks,
            seed=options.seed,
            schedule=options.schedule,
            gpu=options.gpu,
            num_nodes=options.nodes,
            heap_size=options.heap_size,
            report=options.report,
            _process_state=(RankModules(),),
            **more,
        )


def _exit_code(code: object) -> int:
    if code is None or isinstance(code, int):
        return int(code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


def print_error(error: BaseException, path: str) -> None:
    """Print an exception on stderr, from the script's first line on."""
    traceback.print_exception(type(error), error, from_the_script(error, path) or error.__traceback__)


def from_the_script(error: BaseException, path: str) -> TracebackType | None:
    """The traceback from the script's first line on; None if the error does not come from there."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != path:
        frames = frames.tb_next
    return frames


def _rank_main(script: Script, prefix: bool) -> None:
    rank = context.current()
    assert rank is not None
    rank.shown_device = cuda_device(rank)
    sys.argv = [script.path, *script.arguments]
    output = [PrefixedOutput(stream, rank.rank) for stream in (sys.stdout, sys.stderr)] if prefix else []
    if output:
        sys.stdout, sys.stderr = output
    _local.at_exit = []
    try:
        with DeviceMode(rank):
            try:
                script.run()
            finally:
                for function in reversed(_local.at_exit):
                    function()
    finally:
        for stream in output:
            stream.finish()


@contextlib.contextmanager
def _environment(options: Options) -> Iterator[None]:
    """Set the variable that bounds perf_func; simulate gives each rank the caller's environment."""
    before = os.environ.get(PERF_ITERS)
    try:
        if options.perf_iters is not None:
            os.environ[PERF_ITERS] = str(options.perf_iters)
        yield
    finally:
        if options.perf_iters is not None:
            os.environ.pop(PERF_ITERS)
            os.environ.update({PERF_ITERS: before} if before is not None else {})


@contextlib.contextmanager
def looks_like_cuda(folder: str | None = None) -> Iterator[None]:
    """Replace what scripts written for CUDA use: ``torch.cuda``, cuda-bindings, ``nvshmem``, ``triton.jit``, and ``atexit`` for each rank.

    folder: where the script lies, for its imports. All of it is put back at the end.
    """
    from ... import nvshmem_shim
    from ...sim.cuda_shim.bindings import driver, runtime

    bindings = _package("cuda.bindings", driver=driver, runtime=runtime)
    modules: dict[str, ModuleType] = {
        "cuda": _package("cuda", bindings=bindings, cuda=driver, cudart=runtime),
        "cuda.bindings": bindings,
        **dict.fromkeys(("cuda.bindings.driver", "cuda.cuda"), driver),
        **dict.fromkeys(("cuda.bindings.runtime", "cuda.cudart"), runtime),
    }
    hidden = {name: module for name, module in sys.modules.items() if name.split(".")[0] in ("cuda", "nvshmem")}
    path, register = list(sys.path), atexit.register
    for name in hidden:
        del sys.modules[name]
    try:
        sys.modules.update(modules)
        nvshmem_shim.install(replace=True)
        if folder is not None:
            sys.path.insert(0, folder)
        atexit.register = _register(register)  # type: ignore[assignment]
        with torch_cuda.installed(), plain_jit.installed():
            yield
    finally:
        atexit.register = register
        sys.path[:] = path
        nvshmem_shim.uninstall()
        for name in modules:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)


def _package(name: str, **members: Any) -> ModuleType:
    module = ModuleType(name)
    module.__path__ = []
    module.__spec__ = ModuleSpec(name, None, is_package=True)  # which importlib.util.find_spec wants
    module.__dict__.update(members)
    return module


def _register(original: Callable[..., Any]) -> Callable[..., Any]:
    """``atexit.register``: a rank's functions run when its script ends, in its thread."""

    def register(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        if context.current() is None:
            return original(function, *args, **kwargs)
        _local.at_exit.append(lambda: function(*args, **kwargs))
        return function

    return register


def in_process(function: Callable[[], Any]) -> Callable[[], Any]:
    """``function`` as ``simulate`` may run it inside ``looks_like_cuda``: with the rank's tensors on "cuda". For tests."""

    def body() -> Any:
        rank = context.current()
        assert rank is not None
        rank.shown_device = cuda_device(rank)
        _local.at_exit = []
        with DeviceMode(rank):
            return function()

    return body


@contextlib.contextmanager
def simulated_cuda() -> Iterator[Callable[..., list[Any]]]:
    """For tests of code that uses ``torch.cuda`` and "cuda" tensors: gives ``simulate`` for functions that see what a script under
    ``triton-dist run`` sees. Modules that are imported meanwhile see it, too; all of it is put back at the end.
    """
    with looks_like_cuda():
        yield lambda fn, world_size, **options: simulate(in_process(fn), world_size, **options)
