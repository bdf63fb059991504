"""Every test of primitives, streams and operators that takes ``world``, on GPUs: the same functions with the ``world`` of this folder."""

from __future__ import annotations

import inspect

from tests.language.extra import test_libshmem_device
from tests.ops import test_ag_gemm, test_all_gather, test_all_reduce, test_gemm_gradients, test_gemm_rs, test_long_lived_epochs, test_stress
from tests.runtime import test_recorded_streams, test_streams
from tests.sim import test_primitives
from tests.tools import test_doctor_machine

MODULES = (
    test_primitives, test_libshmem_device, test_streams, test_recorded_streams, test_ag_gemm, test_all_gather, test_all_reduce,
    test_gemm_gradients, test_gemm_rs, test_long_lived_epochs, test_stress, test_doctor_machine,
)  # fmt: skip

for _module in MODULES:
    for _name, _test in vars(_module).items():
        if _name.startswith("test_") and "world" in inspect.signature(_test).parameters:
            assert _name not in globals(), f"two shared tests have the name {_name}"
            globals()[_name] = _test
del test_primitives, test_libshmem_device, test_streams, test_recorded_streams, test_ag_gemm, test_all_gather, test_all_reduce
del test_gemm_gradients, test_gemm_rs, test_long_lived_epochs, test_stress, test_doctor_machine
