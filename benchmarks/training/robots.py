"""Number of robots that others made that can be imported and are stable then, and whether arms learn to reach."""

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from benchmarks.training.solve import solve
from physai.sdk.base.errors import PhysaiError
from physai.sim.robots.checks.check import check_robot
from physai.sim.robots.importing.importer import import_robot

FOLDER = "PHYSAI_ROBOTS"
"""Environment variable with a folder of robots, for instance an unpacked example-robot-data from PyPI."""

ARMS = {
    "panda": "panda_description/urdf/panda.urdf",
    "iiwa": "iiwa/robot.xml",
    "xarm7": "xarm_description/urdf/xarm7.urdf",
    "ur5": "ur_description/urdf/ur5_robot.urdf",
    "ur5e": "ur5e/robot.xml",
    "so101": "so_arm_description/urdf/so101.urdf",
}
"""Arms that learn to reach, and the ends of their files' paths in example-robot-data and robosuite."""
REACH_S = 600.0
"""Training time after which an arm's share of reached targets counts [s]."""
QUICK = 3


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Imports and checks every URDF below the folder, and trains the arms there to reach.

    Raises:
        WorkloadError: no folder is given, or it has no URDF.
    """
    named = os.environ.get(FOLDER, "")
    files = sorted(Path(named).rglob("*.urdf"))[: QUICK if options.quick else None] if named else []
    if not files:
        raise WorkloadError(
            f"{FOLDER}={named}: no URDF there; pip download --no-deps example-robot-data robosuite, unzip them, and "
            "name the folder"
        )
    results: list[BenchmarkResult] = []
    for part in options.chosen(("urdf", "reach")):
        results += _stable(files, report) if part == "urdf" else _reach(Path(named), options, report)
    return results


def _stable(files: Sequence[Path], report: ProgressCallback) -> list[BenchmarkResult]:
    stable = imported = 0
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, file in enumerate(files):
            start = time.perf_counter()
            try:
                robot = import_robot(file, Path(folder) / f"robot{number}").robot
            except PhysaiError as refusal:
                report(f"{file.name}: refused: {str(refusal).removeprefix(str(file))}")
                continue
            check = check_robot(robot)
            seconds.append(time.perf_counter() - start)
            imported, stable = imported + 1, stable + check.stable
            severe = "; ".join(f"{found.about}: {found.text}" for found in check.findings if found.severe)
            report(f"{file.name}: {'stable' if check.stable else severe}, {seconds[-1]:.1f} s")
    return [
        BenchmarkResult(name="urdf_stable", unit="1", runs=(float(stable),)),
        BenchmarkResult(name="urdf_imported", unit="1", runs=(float(imported),)),
        BenchmarkResult(name="urdf_total", unit="1", runs=(float(len(files)),)),
        BenchmarkResult(name="urdf_seconds", unit="s", runs=tuple(seconds)),
    ]


def _reach(folder: Path, options: BenchmarkOptions, report: ProgressCallback) -> list[BenchmarkResult]:
    """Share of targets that each arm reaches after training for as long as `REACH_S`, without a line of code."""
    results: list[BenchmarkResult] = []
    for name, ending in ARMS.items():
        file = next(iter(sorted(folder.rglob(ending))), None)
        if file is None:
            report(f"{name}: no {ending} below {folder}")
            continue
        with tempfile.TemporaryDirectory() as place:
            import_robot(file, Path(place) / name)
            robot = ("--model", f"{place}/{name}/")
            seconds, share = solve(
                "reach", 0, quick=options.quick, threshold=0.0, budget_s=options.seconds or REACH_S, arguments=robot
            )
        report(f"{name}: {share:.1%} of held-out targets reached after {seconds:.0f} s")
        results.append(BenchmarkResult(name=f"reach_success.{name}", unit="1", runs=(share,)))
        results.append(BenchmarkResult(name=f"reach_seconds.{name}", unit="s", runs=(seconds,)))
    return results
