"""The runs of clang that turn CUDA C++ into LLVM bitcode."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ...errors import MissingToolError, ToolFailedError

VERSIONS = range(30, 13, -1)
"""Of clang, whose names are tried on the PATH behind the one without a version."""

_TARGET = "nvptx64-nvidia-cuda"

_DECORATIONS = {
    "__device__": "__attribute__((device))",
    "__host__": "__attribute__((host))",
    "__constant__": "__attribute__((constant))",
    "__shared__": "__attribute__((shared))",
    "__forceinline__": "__inline__ __attribute__((always_inline))",
}
"""What CUDA's headers make of its decorations, for sources that do without these headers."""


def find_clang(given: str | None = None) -> str:
    """The clang to run: the one given, else the first on the PATH. Raises MissingToolError."""
    names = [given] if given else ["clang", *(f"clang-{version}" for version in VERSIONS)]
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        raise MissingToolError(
            (f"there is no clang at {given!r}" if given else "no clang on the PATH")
            + "; LLVM bitcode from CUDA C++ needs one (apt install clang, or conda install -c conda-forge clangdev), named by clang= or "
            "--clang; nvcc can't write it. Where clang is on another machine, build there and read the .bc here"
        )
    return found


def compile_to_bitcode(clang: str, source: Path, target: Path, arch: int, cuda_path: str | None, options: Sequence[str]) -> None:
    """Optimised bitcode for an architecture, without debug information. Raises ToolFailedError."""
    text = _run([*_command(clang, source, arch, cuda_path, options), "-O3", "-S", "-o", "-"])
    with tempfile.TemporaryDirectory() as folder:
        changed = Path(folder) / "library.ll"
        changed.write_text(without_flush_flag(text))
        _run([clang, "-x", "ir", f"--target={_TARGET}", "-O0", "-emit-llvm", "-c", "-o", str(target), str(changed)])


def without_flush_flag(text: str) -> str:
    """LLVM's text form of a module without the flag that says what to do with small numbers.

    clang always writes it, with the power to override; so does Triton, and LLVM ends the process if the two differ. Triton's stays.
    """
    nodes = re.findall(r'^(!\d+) = !\{i32 \d+, !"nvvm-reflect-ftz", i32 \d+\}$', text, re.MULTILINE)

    def kept(match: re.Match[str]) -> str:
        return "!llvm.module.flags = !{" + ", ".join(node for node in match[1].split(", ") if node not in nodes) + "}"

    return re.sub(r"^!llvm\.module\.flags = !\{(.*)\}$", kept, text, flags=re.MULTILINE)


def compile_to_described_text(clang: str, source: Path, arch: int, cuda_path: str | None, options: Sequence[str]) -> str:
    """LLVM's text form with debug information, of which the types and names of the source are read. Raises ToolFailedError."""
    return _run([*_command(clang, source, arch, cuda_path, options), "-O0", "-g", "-S", "-o", "-"])


def _command(clang: str, source: Path, arch: int, cuda_path: str | None, options: Sequence[str]) -> list[str]:
    """cuda_path: of a CUDA whose headers are used; without one, the decorations of CUDA are all that the source has."""
    headers = [f"--cuda-path={cuda_path}"] if cuda_path else ["-nocudainc", *(f"-D{name}={text}" for name, text in _DECORATIONS.items())]
    # The device library is Triton's to link, with the kernel.
    kind = ["-x", "cuda", "--cuda-device-only", f"--cuda-gpu-arch=sm_{arch}", "-nocudalib"]
    return [clang, *kind, *headers, "-emit-llvm", *options, str(source)]


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip()
        unknown = re.search(r"unsupported CUDA gpu architecture|unknown.*architecture|unsupported.*gpu", said)
        hint = "; this clang is too old for that architecture: give an older one, such as sm_80, or a newer clang" if unknown else ""
        raise ToolFailedError(f"{' '.join(command)} ended with {done.returncode}{hint}: {said[-3000:]}")
    return done.stdout
