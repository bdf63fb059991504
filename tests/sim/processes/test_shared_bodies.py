"""A sample of the tests that take ``world``, on CPU processes: the same functions with the ``world`` of this folder.

TRITON_DIST_TEST_ALL=1 takes all of them (some minutes).
"""

from __future__ import annotations

import inspect
import os

from tests.language.extra import test_libshmem_device
from tests.ops import test_ag_gemm, test_all_gather, test_stress
from tests.runtime import test_recorded_streams, test_streams
from tests.sim import test_divergence, test_primitives, test_words

MODULES = (
    test_primitives, test_divergence, test_words, test_libshmem_device, test_streams, test_recorded_streams, test_ag_gemm, test_all_gather,
    test_stress,
)  # fmt: skip

for _module in MODULES:
    for _name, _test in vars(_module).items():
        if _name.startswith("test_") and "world" in inspect.signature(_test).parameters:
            assert _name not in globals(), f"two shared tests have the name {_name}"
            globals()[_name] = _test
del (
    test_primitives,
    test_divergence,
    test_words,
    test_libshmem_device,
    test_streams,
    test_recorded_streams,
    test_ag_gemm,
    test_all_gather,
    test_stress,
)

TAKES_ALL = os.environ.get("TRITON_DIST_TEST_ALL", "") not in ("", "0")
