"""Results on disk: one JSON file for what was tuned, on which kind of machine, among how many ranks, by which versions."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import triton

from ... import __version__
from ...errors import AutotuneCacheWarning, InvalidArgumentError
from .report import Row, TuneReport

FORMAT = 1
"""Of the files; others are not read."""

DIRECTORY = "TRITON_DIST_AUTOTUNE_DIR"
"""Environment variable: where the files are; default ~/.triton_dist/autotune."""


def directory() -> Path:
    """Where results are kept. Raises InvalidArgumentError for the home of a user who has none."""
    named = os.environ.get(DIRECTORY, "")
    try:
        return Path(named).expanduser() if named else Path.home() / ".triton_dist" / "autotune"
    except RuntimeError as error:
        raise InvalidArgumentError(f"{DIRECTORY}={named or '~'}: {error}; name a folder there, or tune with cache=False") from None


def machine_of(world: Any) -> dict[str, str]:
    """What a result depends on besides the operator: machine, ranks and versions. The same for all simulated runs with one GPU model."""
    if world.device.type == "cuda":
        properties = torch.cuda.get_device_properties(world.device)
        machine = f"{platform.node()}: {torch.cuda.device_count()} x {properties.name}, CUDA {torch.version.cuda}"
    else:
        gpu = world.machine.gpu
        machine = f"simulated {gpu.name} with {gpu.sm_count} SMs" + (", for its time" if world.machine.timing else "")
    return {
        "machine": machine,
        "world_size": str(world.world_size),
        "nodes": str(world.num_nodes),
        "triton_dist": __version__,
        "triton": triton.__version__,
        "torch": torch.__version__,
    }


class Store:
    """The file of one result.

    what: the operator's name. facts: everything that the result depends on; texts, which are hashed into the file's name and kept in it.
    """

    def __init__(self, what: str, facts: Mapping[str, str]) -> None:
        self._what = what
        self._facts = dict(facts)
        digest = hashlib.sha256(json.dumps(self._facts, sort_keys=True).encode()).hexdigest()[:32]
        plain = re.sub(r"[^\w.-]+", "_", what)[-80:]
        self.path = directory() / plain / f"{digest}.json"

    def load(self, labels: Sequence[str]) -> TuneReport | None:
        """The result, if there is one for these configs. What can't be used is an AutotuneCacheWarning, and None."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            self._say_unusable(f"it can't be read: {error}")
            return None
        try:
            return self._report(json.loads(text), labels)
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            self._say_unusable(f"it is damaged: {type(error).__name__}: {error}")
            return None

    def _report(self, found: Any, labels: Sequence[str]) -> TuneReport:
        """What a file says. Raises ValueError, KeyError, TypeError, AttributeError, ArithmeticError for what it should not say."""
        if found["format"] != FORMAT or found["facts"] != self._facts:
            raise ValueError("it is of another version, or was made for something else")
        rows = [Row(_text(row["label"]), _time(row["milliseconds"]), _text(row["reason"] or "")) for row in found["rows"]]
        timed = [row.label for row in rows if row.milliseconds is not None]
        if found["chosen"] not in timed or {row.label for row in rows} != set(labels):
            raise ValueError("it does not name one of the configs")
        ranks, seconds = int(found["world_size"]), _time(found["seconds"]) or 0.0
        return TuneReport(self._what, _text(found["key"]), rows, found["chosen"], ranks, seconds, cached=True)

    def save(self, report: TuneReport) -> None:
        """Write a result, in one step, so that no other process reads half of it. What goes wrong is an AutotuneCacheWarning."""
        rows = [{"label": row.label, "milliseconds": row.milliseconds, "reason": row.reason} for row in report.rows]
        content = {
            "format": FORMAT, "what": self._what, "key": report.key, "facts": self._facts, "chosen": report.chosen,
            "world_size": report.world_size, "seconds": report.seconds, "rows": rows,
        }  # fmt: skip
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, suffix=".part")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(content, file, indent=1)
                os.replace(temporary, self.path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            warnings.warn(f"the result of tuning {self._what} can't be kept in {self.path}: {error}", AutotuneCacheWarning, stacklevel=2)

    def _say_unusable(self, why: str) -> None:
        warnings.warn(
            f"{self._what} is tuned again, since its result in {self.path} can't be used: {why}", AutotuneCacheWarning, stacklevel=2
        )


def _time(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not 0 <= float(value) < math.inf:
        raise ValueError(f"{value!r} is no time")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
