"""``contextual_autotune`` under the name by which scripts for Triton-distributed import it; see ``tools.autotune.contextual``."""

from .tools.autotune.contextual import ContextualAutoTuner, contextual_autotune

__all__ = ["ContextualAutoTuner", "contextual_autotune"]
