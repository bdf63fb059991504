"""The process in which ``triton-dist check`` runs the script and compiles its kernels, told by JSON lines what happens.

It is one that may be lost: a run that never ends is killed, and the compiler may abort. ``supervise`` starts another one then.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import traceback
import warnings
from typing import Any

from ... import errors
from ...errors import InvalidArgumentError, SimulationError
from ...sim.check.options import LintCheck, RaceCheck, find_check
from ..run import simulated
from ..run.options import Options as RunOptions
from ..run.script import Script
from .collect import Kernels
from .options import Options, Run
from .report import Item, item_of_warning, items_of_error

USAGE, FAILED, FINDINGS, CLEAN = "usage", "failed", "findings", "clean"
"""How a run ended."""


def main(events: int, task: dict[str, Any]) -> None:
    """Do the runs of ``task`` and compile each new kernel behind the run that launched it. events: file descriptor for the JSON lines."""
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in task["options"].items()}
    options = Options(**given)
    with os.fdopen(events, "w", buffering=1) as out:

        def tell(event: str, **what: Any) -> None:
            print(json.dumps({"event": event, **what}), file=out)

        try:
            script = Script(task["path"], task["arguments"])
        except InvalidArgumentError as error:
            tell("usage", text=str(error))
            return
        kernels, compiled = Kernels(), set(task["compiled"])
        for index, run in task["runs"]:
            tell("begin", run=index)
            with kernels.watching():
                outcome = _run(script, Run(**run), options)
            _flush()
            tell("end", run=index, **outcome)
            if outcome["outcome"] == USAGE:
                return
            for key, kernel in kernels.found.items():
                if options.architectures and key not in compiled:
                    compiled.add(key)
                    tell("compiling", kernel=key, name=kernel.name)
                    from ...compiled_checks.verify import verify

                    found = [Item.of(finding) for finding in verify(kernel.source, kernel.options, options.architectures)]
                    _flush()
                    tell("compiled", kernel=key, items=[_encode(item) for item in found])


def _run(script: Script, run: Run, options: Options) -> dict[str, Any]:
    """One run; never raises. Gives how it ended, and what was found."""
    settings = RunOptions(run.ranks, options.nodes, run.seed, run.schedule, options.gpu, options.heap_size)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            simulated.run_once(script, settings, check=collecting(options.check))
            outcome: dict[str, Any] = {"outcome": CLEAN, "items": []}
        except SystemExit as request:
            code = request.code
            if code in (None, 0):
                outcome = {"outcome": CLEAN, "items": []}
            else:
                outcome = {"outcome": FAILED, "items": [], "text": f"the script ended with sys.exit({code!r})"}
        except SimulationError as error:
            outcome = {"outcome": FINDINGS, "items": [_encode(item) for item in items_of_error(error, run)]}
        except BaseException as error:  # whatever the script raised
            if isinstance(error, InvalidArgumentError) and simulated.from_the_script(error, script.path) is None:
                outcome = {"outcome": USAGE, "items": [], "text": str(error)}
            else:
                simulated.print_error(error, script.path)
                text = "".join(traceback.format_exception_only(error)).strip()
                outcome = {"outcome": FAILED, "items": [], "text": f"the script raised {text}"}
    for warning in caught:
        if issubclass(warning.category, errors.MisuseWarning):
            outcome["items"].append(_encode(item_of_warning(str(warning.message), run)))
        else:
            print(warnings.formatwarning(warning.message, warning.category, warning.filename, warning.lineno), file=sys.stderr, end="")
    return outcome


def collecting(check: str) -> list[RaceCheck | LintCheck] | None:
    """What to pass to ``simulate`` for "race", "lint", "all" or "none" so that all that is found in a run is told."""
    found = None if check == "none" else find_check(check)
    if found is None:
        return None
    return [dataclasses.replace(part, collect=True) for part in (found.race, found.lint) if part is not None]


def _encode(item: Item) -> dict[str, Any]:
    return dataclasses.asdict(item)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
