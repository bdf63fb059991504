"""Write the benchmark tables of documents anew from their JSON files, or check that they are current.

``python benchmarks/tables.py README.md`` rewrites; ``--check`` changes nothing and exits with 1 if a table is not what its file says. How a
table is marked: harness/tables.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.tables import update_document


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="only say which documents are not current")
    arguments = parser.parse_args(words)
    stale = []
    for document in arguments.documents:
        try:
            updated = update_document(document)
        except (ValueError, OSError) as error:
            print(error, file=sys.stderr)
            return 2
        if updated == document.read_text():
            continue
        stale.append(document)
        if not arguments.check:
            document.write_text(updated)
    for document in stale:
        print(f"{document}: {'not current; run python benchmarks/tables.py ' + str(document) if arguments.check else 'written'}")
    return 1 if stale and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
