"""Files with recordings of real robots in the folder that PHYSAI_DATA names."""

from pathlib import Path


def of_double_pendulum(data: Path) -> list[Path]:
    """The recordings of the double pendulum; the planned trajectory of a controller beside them is none."""
    found = (data / "dfki_double_pendulum").rglob("trajectory.csv.gz")
    return sorted(path for path in found if "trajectories" not in path.parts)
