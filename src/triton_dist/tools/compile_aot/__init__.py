"""Compilation ahead of time: kernels become C source, a header and a shared library that a program without Python can link.

No GPU is needed to build; see docs/aot.md for what a program has to do to run the kernels on the symmetric heap.
"""

from .generate import dump_c_code, kernel_name_suffix, make_ast_source, materialize_c_params
from .lend import lend_heap
from .library import Library, build_library
from .spaces import aot_compile_spaces, spaces_of

__all__ = [
    "Library",
    "aot_compile_spaces",
    "build_library",
    "dump_c_code",
    "kernel_name_suffix",
    "lend_heap",
    "make_ast_source",
    "materialize_c_params",
    "spaces_of",
]
