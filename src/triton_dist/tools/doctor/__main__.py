"""``python -m triton_dist.tools.doctor [--quick]``: the JSON of ``triton-dist doctor``, where typer and rich are not installed."""

from __future__ import annotations

import sys

from .examine import examine
from .render import exit_code, print_json


def main() -> int:
    """Print the findings as JSON; returns the exit status: 0, 1 if something needed is missing, 2 for wrong arguments."""
    unknown = [argument for argument in sys.argv[1:] if argument != "--quick"]
    if unknown:
        print(f"unknown arguments {unknown}; there is --quick only (triton-dist doctor has more)", file=sys.stderr)
        return 2
    findings = examine(quick="--quick" in sys.argv[1:])
    print_json(findings)
    return exit_code(findings)


if __name__ == "__main__":
    sys.exit(main())
