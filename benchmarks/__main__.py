"""`python -m benchmarks [NAME]`: compare speed and success with other software."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.harness.programs import let_children_import

from benchmarks.measure import BenchmarkOptions, as_text, document
from benchmarks.registry import list_benchmarks, run_benchmark
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import styled, table

MAX_SECONDS = 86_400.0
MAX_BUSY = 1024


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="BENCHMARK", help="what to measure (default: list the benchmarks)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="smoke test with tiny sizes; the numbers are meaningless")
    parser.add_argument("--task", action="append", default=[], metavar="NAME", help="only this task; may be repeated")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="runs of a stochastic workload (default: 3)")
    parser.add_argument("--seconds", type=float, metavar="S", help="how long to time a control loop (runtime)")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="number of busy processes as load (runtime)")
    parser.add_argument("--peer-python", type=Path, metavar="FILE", help="Python that has mjlab installed (gpu)")


def _run(arguments: argparse.Namespace) -> int:

    if arguments.name is None:
        rows = list(list_benchmarks().items())
        print(json.dumps(dict(rows), indent=2) if arguments.json else table(("benchmark", "measures"), rows, indent=""))
        return 0
    if not 1 <= arguments.seeds <= 100:
        raise PhysaiError(f"--seeds must lie in 1 … 100, got {arguments.seeds}")
    if arguments.seconds is not None and not 1.0 <= arguments.seconds <= MAX_SECONDS:
        raise PhysaiError(f"--seconds must lie in 1 … {MAX_SECONDS:.0f}, got {arguments.seconds:g}")
    if not 0 <= arguments.busy <= MAX_BUSY:
        raise PhysaiError(f"--busy must lie in 0 … {MAX_BUSY}, got {arguments.busy}")
    options = BenchmarkOptions(
        quick=arguments.quick,
        tasks=tuple(arguments.task),
        seeds=arguments.seeds,
        seconds=arguments.seconds,
        busy=arguments.busy,
        peer_python=arguments.peer_python,
    )
    results = run_benchmark(arguments.name, options, _say)
    if arguments.json:
        print(json.dumps(document(arguments.name, results), indent=2))
    else:
        print(as_text(results))
    return 0


def _say(text: str) -> None:
    print(styled(text, "dim", sys.stderr), file=sys.stderr)


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare with other software.")
    _add_arguments(parser)
    arguments = parser.parse_args(words)
    let_children_import()
    try:
        return _run(arguments)
    except PhysaiError as error:
        print(f"benchmarks: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
