"""Which method a collective takes for so many bytes, and with which parameters: from this machine's table, or a default.

``triton-dist tune`` measures a machine and writes one JSON file for each GPU model and number of ranks (``table_path``). An operator asks
``planned`` at each call; the first call of a team reads the file on its first rank and tells the others, so that all take the same way
whatever files they see. docs/collectives_tuning.md has the format.
"""

from __future__ import annotations

import bisect
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from ...errors import TuningTableError
from ...runtime.world import require_world
from ..team import Team

SCHEMA = 1
_POWERS = tuple(1 << bits for bits in range(20))
DIRECTORY_VARIABLE = "TRITON_DIST_TUNE_DIR"
_UNREADABLE = "it can't be read: "


@dataclass(frozen=True)
class Plan:
    """How a call is done. method: the operator's name of it. 0 leaves a parameter to the method.

    programs: of the grid, at most. warps: of a program. load_bytes: that a program loads from one rank at a time.
    """

    method: str
    programs: int = 0
    warps: int = 0
    load_bytes: int = 0


@dataclass(frozen=True)
class Row:
    """The plan for messages of at most ``up_to`` bytes; None: of any size."""

    up_to: int | None
    plan: Plan


@dataclass(frozen=True)
class Table:
    """One machine's plans. rows: by operator, then "any" or "exact" (never the library); each list from small to large.

    gpu: its name, as torch gives it. ranks: of the group. environment: what it was measured with, for the reader.
    """

    gpu: str
    ranks: int
    rows: Mapping[str, Mapping[str, Sequence[Row]]]
    environment: Mapping[str, str] = field(default_factory=dict)

    def find(self, operator: str, nbytes: int, exact: bool) -> Plan | None:
        """The plan for a call, if there is one. The last row serves larger messages, too, if it names no limit."""
        rows = self.rows.get(operator, {}).get("exact" if exact else "any", ())
        number = bisect.bisect_left([row.up_to if row.up_to is not None else nbytes for row in rows], nbytes)
        return rows[number].plan if number < len(rows) else None

    def to_json(self) -> str:
        """The file's text."""
        rows = {
            operator: {kind: [{"up_to": row.up_to, **_given(row.plan)} for row in of_kind] for kind, of_kind in kinds.items()}
            for operator, kinds in self.rows.items()
        }
        values = {"schema": SCHEMA, "gpu": self.gpu, "ranks": self.ranks, "environment": dict(self.environment), "operators": rows}
        return json.dumps(values, indent=1) + "\n"


def table_of_json(text: str, where: str) -> Table:
    """The inverse of ``to_json``. where: for messages. Raises TuningTableError for anything else."""
    if text.startswith(_UNREADABLE):
        raise TuningTableError(f"{where}: {text}")
    try:
        values = json.loads(text)
        if values["schema"] != SCHEMA:
            raise TuningTableError(f"{where} has schema {values['schema']!r}, this version reads {SCHEMA}: run triton-dist tune again")
        rows = {
            operator: {kind: tuple(_row(row) for row in of_kind) for kind, of_kind in kinds.items()}
            for operator, kinds in values["operators"].items()
        }
        for kinds in rows.values():
            for of_kind in kinds.values():
                limits = [row.up_to for row in of_kind]
                sizes = [limit for limit in limits if limit is not None]
                if None in limits[:-1] or sizes != sorted(set(sizes)):
                    raise ValueError(f"up_to has to grow, and only the last may be null: {limits}")
        return Table(values["gpu"], int(values["ranks"]), rows, values.get("environment", {}))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise TuningTableError(f"{where} is not a table of triton-dist tune ({reason}): delete it, or tune again") from None


def table_directory() -> Path:
    """Where tables are: TRITON_DIST_TUNE_DIR, else ``triton_dist`` in the user's cache directory (XDG_CACHE_HOME, or ~/.cache)."""
    named = os.environ.get(DIRECTORY_VARIABLE, "")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "triton_dist"


def table_path(gpu: str, ranks: int) -> Path:
    """The file of a GPU model and a number of ranks."""
    return table_directory() / f"collectives-{re.sub(r'[^0-9A-Za-z]+', '_', gpu).strip('_')}-x{ranks}.json"


def gpu_name(device: torch.device) -> str:
    """What a table calls the GPU that ``device`` is; "simulated" for the simulator's."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "simulated"


def planned(operator: str, nbytes: int, team: Team, exact: bool) -> Plan | None:
    """The tuned plan of a call of ``operator`` with so many bytes, the same on all ranks of the team; None where the table has none.

    Every rank of the team calls it. Raises TuningTableError, on all of them, for a file that is no table or is another machine's.
    """
    world = require_world(operator)
    key = ("tuned collectives", None, team.ranks)
    if key not in world.workspaces:
        world.workspaces[key] = _agreed_table(team)
    table: Table | None = world.workspaces[key]
    return None if table is None else table.find(operator, nbytes, exact)


def chosen(operator: str, nbytes: int, team: Team, exact: bool, methods: Sequence[str], choose: Callable[[int, int, bool], str]) -> Plan:
    """What "auto" does for so many bytes: the tuned plan, or the method that ``choose(nbytes, ranks, exact)`` gives.

    methods: that the operator has, "auto" first. Every rank of the team calls it. Raises TuningTableError.
    """
    plan = planned(operator, nbytes, team, exact)
    if plan is not None and plan.method not in methods[1:]:
        raise TuningTableError(
            f"{operator}: the tuned method {plan.method!r} is not one of {methods[1:]}: the table is of another version, tune again"
        )
    return plan or Plan(choose(nbytes, team.size, exact))


def _agreed_table(team: Team) -> Table | None:
    world = require_world("the table of tuned collectives")
    gpu = gpu_name(world.device)
    path = table_path(gpu, team.size)
    # Simulated ranks are threads of one process: all see one file.
    gather = getattr(world, "gather_among", None)
    text = _read(path) if gather is None or team.index == 0 else None
    if gather is not None:
        text = gather(team.ranks, text)[0]
    if text is None:
        return None
    table = table_of_json(text, f"{path} of rank {team.ranks[0]}")
    if (table.gpu, table.ranks) != (gpu, team.size):
        raise TuningTableError(
            f"{path} of rank {team.ranks[0]} is of {table.ranks} x {table.gpu}, and this is a group of {team.size} x {gpu}: "
            "delete it, or run triton-dist tune here"
        )
    return table


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        # The other ranks wait for this one's answer; they get what will be refused, with the reason.
        return f"{_UNREADABLE}{error}"


def _row(values: Mapping) -> Row:
    facts = dict(values)
    up_to = facts.pop("up_to")
    if up_to is not None and not isinstance(up_to, int):
        raise ValueError(f"up_to is {up_to!r}")
    plan = Plan(**facts)
    if (
        not isinstance(plan.programs, int)
        or plan.programs < 0
        or any(number not in (0, *_POWERS) for number in (plan.warps, plan.load_bytes))
    ):
        raise ValueError(f"{facts}: programs is a number, 0 or more; warps and load_bytes are powers of 2, or 0")
    return Row(up_to, plan)


def _given(plan: Plan) -> dict[str, object]:
    return {name: value for name, value in asdict(plan).items() if value}
