"""Autotuning where every rank has to run the same config: whole operators, and kernels under ``triton.autotune``.

``operator`` is the decorator of a host function, ``kernel`` what ``triton.autotune`` becomes over a kernel that communicates. Both
choose by ``search``: all ranks try the same configs in the same order, each in an attempt (``runtime.attempts``), with what is
symmetric among the arguments as it was. A config's time is that of the slowest rank; one that fails or hangs on a rank is out on all.
"""

from .contextual import ContextualAutoTuner, contextual_autotune
from .kernel import tuned_together
from .operator import TunedOperator, autotune
from .report import Row, TuneReport

__all__ = ["ContextualAutoTuner", "Row", "TuneReport", "TunedOperator", "autotune", "contextual_autotune", "tuned_together"]
