"""One rank's run of a script: as ``python script.py`` would, with a ``__main__`` module, arguments and imported modules of its own."""

from __future__ import annotations

import io
import os
import site
import sys
import sysconfig
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from ...errors import InvalidArgumentError


class Script:
    """A script that many ranks run. Raises InvalidArgumentError, naming the path, if it can't be read or is no Python."""

    def __init__(self, path: str, arguments: Sequence[str]) -> None:
        self.path = path
        self.arguments = list(arguments)
        if not os.path.isfile(path):
            raise InvalidArgumentError(f"there is no script {path!r}" + (" (it is a directory)" if os.path.isdir(path) else ""))
        try:
            with open(path, "rb") as file:
                self._code = compile(file.read(), path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise InvalidArgumentError(f"{path} is not a Python script: {error}") from error

    def run(self) -> None:
        """Run it in this thread, in a fresh ``__main__``."""
        module = types.ModuleType("__main__")
        module.__dict__.update(__file__=self.path, __cached__=None, __builtins__=__builtins__)
        sys.modules["__main__"] = module
        exec(self._code, module.__dict__)  # noqa: S102  (running the user's script is what this is for)


class RankModules:
    """The modules that are each rank's own: ``__main__`` and what it imports of the user's, which a process has one copy of.

    Modules of the standard library and of installed packages are shared, as are those that were imported before the run.
    """

    def __init__(self) -> None:
        self._shared = set(sys.modules) - {"__main__"}
        paths = sysconfig.get_paths()
        self._installed = tuple(
            {os.path.realpath(folder) + os.sep for folder in (*site.getsitepackages(), site.getusersitepackages())}
            | {os.path.realpath(paths[name]) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
            | {str(Path(__file__).resolve().parents[2]) + os.sep}
        )
        self._own: dict[str, bool] = {}
        self._here: dict[str, Any] = {}
        self._count = -1
        self._main: Any = None

    def _is_own(self, name: str, module: Any) -> bool:
        if name not in self._own:
            file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
            self._own[name] = name == "__main__" or file is not None and not os.path.realpath(file).startswith(self._installed)
        return self._own[name]

    def take(self) -> dict[str, Any]:
        """The own modules of the rank that runs now."""
        if len(sys.modules) != self._count or sys.modules.get("__main__") is not self._main:
            new = [name for name in sys.modules if name not in self._shared]
            self._shared.update(name for name in new if not self._is_own(name, sys.modules[name]))
            self._here = {name: sys.modules[name] for name in new if name not in self._shared}
            self._remember()
        return self._here

    def exchange(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Put one rank's own modules in place of another's."""
        for name in before:
            sys.modules.pop(name, None)
        sys.modules.update(after)
        self._here = after
        self._remember()

    def _remember(self) -> None:
        """What tells at the next switch, which come by the thousand, whether anything was imported since."""
        self._count, self._main = len(sys.modules), sys.modules.get("__main__")


class PrefixedOutput(io.TextIOBase):
    """Writes to ``target``, each line behind the rank's number; lines of ranks are never mixed."""

    def __init__(self, target: TextIO, rank: int) -> None:
        self._target = target
        self._prefix = f"[rank {rank}] "
        self._line = ""

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._target.write(f"{self._prefix}{line}\n")
        return len(text)

    def flush(self) -> None:
        self._target.flush()

    def finish(self) -> None:
        """Write what has no end of line yet."""
        if self._line:
            self.write("\n")
        self.flush()
