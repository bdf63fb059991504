"""Entry point through which Triton finds the simulator; see ``compiler`` and ``driver``.

Triton imports the two modules while it is itself half loaded, and an exception here would break ``import triton`` for
everyone. So they need only the standard library and ``triton.backends``, and load ``triton_dist`` when first used.
"""
