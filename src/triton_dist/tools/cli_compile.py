"""Commands of ``triton-dist`` around compiled kernels: ``aot``."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidArgumentError, MissingToolError, ToolFailedError


def register(app: Any, typer: Any) -> None:
    """Add the commands to the command line."""
    _register_aot(app, typer)


def _refuse(typer: Any, error: Exception) -> Any:
    """Wrong usage, or a program that is missing: the text alone, and exit code 2."""
    typer.echo(f"triton-dist: {error}", err=True)
    return typer.Exit(2)


def _register_aot(app: Any, typer: Any) -> None:
    several_kernels = typer.Argument(..., help="Kernels decorated by aot_compile_spaces, as file.py:kernel or module:kernel.")

    @app.command()
    def aot(
        kernels: list[str] = several_kernels,
        name: str = typer.Option(..., "--name", help="Of the library: lib<name>.so and <name>.h."),
        out: str = typer.Option("aot", "--out", help="Folder for all files."),
        target: str = typer.Option("sm_90", "--target", help="Compute capability of the GPUs that the library is for."),
        compiler: str = typer.Option("cc", "--compiler", help="The C compiler's command."),
        sources_only: bool = typer.Option(False, "--sources-only", help="Write the C files and build no library."),
    ) -> None:
        """Compile kernels ahead of time: C source, a header and a shared library. No GPU is needed."""
        from .compile_aot import build_library
        from .kernel_signature import load_kernel

        try:
            built = build_library(
                [load_kernel(kernel) for kernel in kernels], out, name, target=target, compiler=compiler, sources_only=sources_only
            )
        except (InvalidArgumentError, MissingToolError, ToolFailedError) as error:
            raise _refuse(typer, error) from None
        for function, count in built.functions.items():
            typer.echo(f"{function}: {count} algorithm{'s' if count > 1 else ''}")
        typer.echo(f"header: {built.header}")
        typer.echo(f"library: {built.shared}" if built.shared else f"sources: {built.header.parent}/*.c")
