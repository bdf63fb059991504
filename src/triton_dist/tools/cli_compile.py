"""Commands of ``triton-dist`` around compiled kernels: ``aot``, ``inspect`` and ``build-extern``."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidArgumentError, MissingToolError, ToolFailedError


def register(app: Any, typer: Any) -> None:
    """Add the commands to the command line."""
    _register_aot(app, typer)
    _register_inspect(app, typer)
    _register_build_extern(app, typer)


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
        target: str = typer.Option("sm_90", "--target", help="Compute capability of the GPUs that the library is for, or gfx942."),
        compiler: str = typer.Option("cc", "--compiler", help="The C compiler's command."),
        sources_only: bool = typer.Option(False, "--sources-only", help="Write the C files and build no library."),
    ) -> None:
        """Compile kernels ahead of time: C source, a header and a shared library. No GPU is needed."""
        from .compile_aot import build_library
        from .kernel_file import load_kernel

        try:
            built = build_library(
                [load_kernel(kernel) for kernel in kernels], out, name, target=target, compiler=compiler, sources_only=sources_only
            )
        except (InvalidArgumentError, MissingToolError, ToolFailedError) as error:
            raise _refuse(typer, error) from None
        for function, count in built.functions.items():
            typer.echo(f"{function}: {count} algorithm{'s' if count > 1 else ''}")
        typer.echo(f"header: {built.header}")
        if built.code_objects:
            typer.echo(f"code objects: {built.header.parent}/*.hsaco; nothing here launches them, kernels for AMD GPUs are compiled only")
        else:
            typer.echo(f"library: {built.shared}" if built.shared else f"sources: {built.header.parent}/*.c")


def _register_inspect(app: Any, typer: Any) -> None:
    constants = typer.Option([], "--constexpr", help="A value that is compiled in, as NAME=VALUE; once for each.")

    @app.command()
    def inspect(
        kernel: str = typer.Argument(..., help="The kernel, as file.py:kernel or module:kernel."),
        signature: str = typer.Option(
            "",
            "--signature",
            help='An item for each argument that no --constexpr names, in order: "*bf16:16, i32"; :16 is a multiple of 16.',
        ),
        constexpr: list[str] = constants,
        target: str = typer.Option("sm_90", "--target", help="Compute capability of the GPU."),
        num_warps: int = typer.Option(4, "--num-warps", help="Warps of a block."),
        num_stages: int = typer.Option(3, "--num-stages", help="Stages of pipelined loops."),
        num_ctas: int = typer.Option(1, "--num-ctas", help="Blocks of a cluster."),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON object instead of tables."),
    ) -> None:
        """Compile a kernel and say what it does to other ranks' memory: accesses and their width, signals, waits, and what it costs.

        No GPU is needed. Exit code: 0, or 2 for wrong usage.
        """
        from .inspect import inspect_kernel
        from .inspect.render import print_json, print_report
        from .kernel_signature import read_value

        try:
            values = {}
            for item in constexpr:
                name, equals, value = item.partition("=")
                if not equals:
                    raise InvalidArgumentError(f"--constexpr {item!r}: write NAME=VALUE")
                values[name.strip()] = read_value(value, f"--constexpr {name.strip()}")
            options = {"num_warps": num_warps, "num_stages": num_stages, "num_ctas": num_ctas}
            report = inspect_kernel(kernel, signature, values, target=target, **options)
        except InvalidArgumentError as error:
            raise _refuse(typer, error) from None
        (print_json if as_json else print_report)(report)


def _register_build_extern(app: Any, typer: Any) -> None:
    pure_symbols = typer.Option([], "--pure", help="A function that depends on its arguments only; once for each.")
    clang_options = typer.Option([], "--clang-option", help="A further option for clang; once for each.")

    @app.command("build-extern")
    def build(
        source: str = typer.Argument(..., help="CUDA C++ (.cu) to build; or a library that is there (.bc, .ll), to list."),
        out: str = typer.Option(None, "--out", help="Folder of the bitcode and the stubs; the source's by default."),
        arch: str = typer.Option("sm_80", "--arch", help="The oldest GPU that the library is for."),
        clang: str = typer.Option(None, "--clang", help="The clang to run; by default the first on the PATH."),
        cuda_path: str = typer.Option(None, "--cuda-path", help="A CUDA whose headers the source includes."),
        clang_option: list[str] = clang_options,
        pure: list[str] = pure_symbols,
        stubs: bool = typer.Option(True, "--stubs/--no-stubs", help="Write Python stubs, beside the bitcode."),
    ) -> None:
        """Turn CUDA C++ into bitcode for dl.extern_call, list its functions, and write Python stubs for them."""
        from pathlib import Path

        from .extern_library import build_extern, read_library

        try:
            if Path(source).suffix in (".bc", ".ll"):
                library = read_library(source, pure=pure, stubs=stubs)
            else:
                library = build_extern(
                    source, out, arch=arch, clang=clang, cuda_path=cuda_path, options=clang_option, pure=pure, stubs=stubs
                )
        except (InvalidArgumentError, MissingToolError, ToolFailedError) as error:
            raise _refuse(typer, error) from None
        for function in library.functions:
            typer.echo(function.text() + ("" if function.callable else "   no kernel can call it"))
        typer.echo(f"library: {library.path}")
        if library.stubs:
            typer.echo(f"stubs: {library.stubs}")
