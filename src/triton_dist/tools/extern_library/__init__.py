"""Bitcode libraries for ``extern_call``: built from CUDA C++ by clang, their functions listed, and stubs written that kernels call."""

from .build import ExternLibrary, build_extern, read_library
from .functions import ExternFunction

__all__ = ["ExternFunction", "ExternLibrary", "build_extern", "read_library"]
