"""The command ``triton-dist``. Needs the extra ``[tools]`` (typer and rich) and says so where it is missing.

Starting it imports neither torch nor Triton: each command imports what it needs when it runs.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

EXTRA = ("typer", "rich")
"""Packages of the extra ``[tools]``."""

MISSING_EXTRA = 2
"""Exit code where typer or rich is not installed."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; ``arguments`` default to those of the process. Returns the exit code."""
    missing = [name for name in EXTRA if not _can_import(name)]
    if missing:
        print(
            f"triton-dist: {' and '.join(missing)} not installed; the command line needs: pip install 'triton-dist[tools]'", file=sys.stderr
        )
        return MISSING_EXTRA
    import typer

    code = typer.main.get_command(_app(typer)).main(args=arguments, prog_name="triton-dist", standalone_mode=False)
    return code if isinstance(code, int) else 0


def _can_import(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def run() -> None:
    """The console script."""
    try:
        code = main()
    except Exception as error:
        code = _usage_error(error)
    sys.exit(code)


def _usage_error(error: Exception) -> int:
    """Print what was wrong with the command line, as typer does; anything else goes on."""
    show = getattr(error, "show", None)
    if show is None:
        raise error
    show()
    return int(getattr(error, "exit_code", 1))


def _app(typer: Any) -> Any:
    app = typer.Typer(
        no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Multi-GPU programming for stock Triton."
    )

    @app.callback(invoke_without_command=True)
    def options(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
        if version:
            from .. import __version__

            print(f"triton-dist {__version__}")
            raise typer.Exit()

    from .cli_compile import register

    for commands in (_about_the_machine, _about_scripts, register):
        commands(app, typer)
    return app


def _about_the_machine(app: Any, typer: Any) -> None:
    @app.command()
    def doctor(
        as_json: bool = typer.Option(False, "--json", help="Print one JSON object instead of tables."),
        quick: bool = typer.Option(False, "--quick", help="Skip what is measured: heap test, latency, bandwidth."),
        timeout: float = typer.Option(180.0, "--timeout", min=1.0, help="Seconds for the measured part."),
    ) -> None:
        """Say what this machine has for triton_dist, what is missing, and how to get it. Exits with 1 if something needed is missing."""
        from .doctor.examine import examine
        from .doctor.render import exit_code, print_json, print_tables

        findings = examine(quick=quick, timeout=timeout)
        (print_json if as_json else print_tables)(findings)
        raise typer.Exit(exit_code(findings))

    @app.command()
    def attach(pid: int = typer.Argument(..., help="Process id of a rank.", min=1)) -> None:
        """Print what the kernels of a live, hung job wait for."""
        from .attach import attach as attach_to

        raise typer.Exit(attach_to(pid))

    @app.command()
    def tune(
        operators: str = typer.Option("all_reduce", "--operators", help="Names, separated by commas."),
        max_bytes: int = typer.Option(1 << 28, "--max-bytes", min=1, help="The largest message that is measured."),
        budget: float = typer.Option(None, "--budget", help="Seconds after which no further size begins."),
        dry_run: bool = typer.Option(False, "--dry-run", help="On simulated ranks, two sizes; writes nothing."),
        ranks: int = typer.Option(2, "--ranks", min=1, help="Simulated ranks of a dry run."),
    ) -> None:
        """Measure this machine's collectives and write the table that they choose by. Start it by torchrun, one rank a GPU."""
        from .tune.command import tune as tune_machine

        raise typer.Exit(tune_machine(operators=_names(operators), max_bytes=max_bytes, budget=budget, dry_run=dry_run, ranks=ranks))


def _about_scripts(app: Any, typer: Any) -> None:
    several_ranks = typer.Option(["2"], "--ranks", help="Simulated ranks; several numbers, separated by commas, are tried in turn.")
    script_arguments = typer.Argument(None, help="The script's own arguments; options of triton-dist come before the script.")

    @app.command(context_settings={"allow_interspersed_args": False})
    def run(
        script: str = typer.Argument(..., help="A Python script, as torchrun takes it."),
        arguments: list[str] = script_arguments,
        ranks: int = typer.Option(2, "--ranks", help="Simulated ranks."),
        nodes: int = typer.Option(1, "--nodes", help="Hosts that the ranks are spread over; peers on another one have no direct pointer."),
        seed: int = typer.Option(0, "--seed", help="Chooses the interleaving: the same seed, the same run."),
        schedule: str = typer.Option(
            "random", "--schedule", help="random, pct[:depth], late, straggler, round_robin, or replay:<what explore reported>."
        ),
        gpu: str = typer.Option("h100", "--gpu", help="The GPU model to pretend to be."),
        heap_size: int = typer.Option(None, "--heap-size", help="Bytes of each rank's symmetric heap."),
        perf_iters: int = typer.Option(None, "--perf-iters", min=1, help="At most so many rounds of profiler_utils.perf_func."),
        prefix: bool = typer.Option(False, "--prefix", help="Begin each line of output with the rank."),
        report: str = typer.Option(None, "--report", help="Write what happened to this file: .html a page, .json or .pftrace a trace."),
    ) -> None:
        """Run a script written for CUDA and torchrun on simulated ranks, unchanged. Started by torchrun, it is one rank on its GPU."""
        from .run.command import run as run_script

        settings = {"ranks": ranks, "nodes": nodes, "seed": seed, "schedule": schedule, "gpu": gpu, "heap_size": heap_size}
        settings["report"] = report
        raise typer.Exit(run_script(script, arguments or [], prefix=prefix, perf_iters=perf_iters, **settings))

    @app.command(context_settings={"allow_interspersed_args": False})
    def check(
        script: str = typer.Argument(..., help="A Python script, as torchrun takes it."),
        arguments: list[str] = script_arguments,
        ranks: list[str] = several_ranks,
        nodes: int = typer.Option(1, "--nodes", help="Hosts that the ranks are spread over."),
        seeds: int = typer.Option(4, "--seeds", help="How many seeds to try, each with every schedule."),
        first_seed: int = typer.Option(0, "--first-seed", help="The first of them."),
        schedules: str = typer.Option("random,pct,late,straggler", "--schedules", help="Names of schedules, separated by commas."),
        budget: float = typer.Option(None, "--budget", help="Seconds after which no further run begins."),
        time_limit: float = typer.Option(120.0, "--time-limit", help="Seconds for one run or one compilation."),
        looks_for: str = typer.Option("all", "--check", help="What the simulator looks for: race, lint, all or none."),
        no_compile: bool = typer.Option(False, "--no-compile", help="Do not compile the kernels for GPUs."),
        arch: str = typer.Option("90,100", "--arch", help="Compute capabilities to compile for, separated by commas."),
        ignore: str = typer.Option("", "--ignore", help="Codes that are not reported, separated by commas."),
        gpu: str = typer.Option("h100", "--gpu", help="The GPU model to pretend to be."),
        heap_size: int = typer.Option(None, "--heap-size", help="Bytes of each rank's symmetric heap."),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON object on stdout."),
    ) -> None:
        """Run a script under many schedules on simulated ranks, check all it does, and check its kernels as compiled for GPUs.

        Exit code: 0 clean, 1 something was found, 2 wrong usage, 3 the script itself failed.
        """
        from .check.command import check as check_script

        options = {
            "ranks": _numbers("--ranks", ",".join(ranks)), "nodes": nodes, "seeds": seeds, "first_seed": first_seed,
            "schedules": _names(schedules), "budget": budget, "time_limit": time_limit, "check": looks_for, "ignore": _names(ignore),
            "architectures": () if no_compile else _numbers("--arch", arch), "gpu": gpu, "heap_size": heap_size,
        }  # fmt: skip
        raise typer.Exit(check_script(script, arguments or [], options, as_json=as_json))


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _numbers(option: str, text: str) -> tuple[int, ...]:
    import typer

    try:
        return tuple(int(name) for name in _names(text))
    except ValueError:
        raise typer.BadParameter(f"{text!r}: give numbers, separated by commas", param_hint=option) from None


if __name__ == "__main__":
    run()
