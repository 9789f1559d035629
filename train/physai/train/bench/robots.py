"""How many robots that others made can be imported, and are stable then."""

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from physai.sdk.base.benchmark import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from physai.sdk.base.errors import PhysaiError
from physai.sim.robots.check import check_robot
from physai.sim.robots.importing.importer import import_robot

FOLDER = "PHYSAI_ROBOTS"
"""Environment variable with a folder of robots, for instance an unpacked example-robot-data from PyPI."""

QUICK = 3


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Imports and checks every URDF below the folder.

    Raises:
        WorkloadError: no folder is given, or it has no URDF.
    """
    named = os.environ.get(FOLDER, "")
    files = sorted(Path(named).rglob("*.urdf"))[: QUICK if options.quick else None] if named else []
    if not files:
        raise WorkloadError(
            f"{FOLDER}={named}: no URDF there; pip download --no-deps example-robot-data, unzip it, and name the folder"
        )
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
