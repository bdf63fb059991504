"""A script as one rank of a torchrun job on GPUs: only the imports that may be missing are added.

torchrun --nproc-per-node 4 -m triton_dist.tools.cli run script.py arguments
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import torch

from ...errors import NotInitializedError
from . import plain_jit
from .script import Script


def prepare(path: str, arguments: Sequence[str]) -> Script:
    """Make this process ready to run the script, and return it. Raises InvalidArgumentError, and NotInitializedError without a GPU.

    An ``nvshmem`` that is installed is used unless TRITON_DIST_NVSHMEM_SHIM=1 asks for this package's.
    """
    from ... import nvshmem_shim
    from ...utils import get_bool_env

    script = Script(path, arguments)
    if not torch.cuda.is_available():
        raise NotInitializedError(
            "triton-dist run was started by torchrun on a machine with no GPU; leave out torchrun to run on simulated ranks: "
            "triton-dist run --ranks N script.py"
        )
    plain_jit.replace()
    nvshmem_shim.install(replace=get_bool_env("TRITON_DIST_NVSHMEM_SHIM", False))
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    return script
