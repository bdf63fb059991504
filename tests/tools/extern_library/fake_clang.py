#!/usr/bin/env python3
"""Stands in for clang: writes down how it was called, and gives what the tests have of a real one.

FAKE_CLANG_FAILS: what it says when it is to fail.
"""

import os
import shutil
import sys
from pathlib import Path

HERE = Path(os.environ["FAKE_CLANG_DATA"])
with open(os.environ["FAKE_CLANG_LOG"], "a") as log:
    log.write("\0".join(sys.argv[1:]) + "\n")
if os.environ.get("FAKE_CLANG_FAILS"):
    sys.exit(os.environ["FAKE_CLANG_FAILS"])
target = sys.argv[sys.argv.index("-o") + 1]
if "-c" in sys.argv:
    # What is assembled must not have the flag any more that the text had.
    assert "!llvm.module.flags = !{!1}" in Path(sys.argv[-1]).read_text()
    shutil.copy(HERE / "norms.bc", target)
elif "-g" in sys.argv:
    print((HERE / "described.txt").read_text())
else:
    print('!llvm.module.flags = !{!0, !1}\n!0 = !{i32 4, !"nvvm-reflect-ftz", i32 0}\n!1 = !{i32 1, !"wchar_size", i32 4}')
