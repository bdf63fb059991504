"""The part of cuda-bindings that scripts use on streams, for simulated ranks: ``driver`` and ``runtime``.

As there, every function returns a tuple that begins with an error code. A wrong handle or address is an error of this package instead,
which says more than a code does.
"""
