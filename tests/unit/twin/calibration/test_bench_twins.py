"""`python -m benchmarks twins`: the twin of a random robot is accepted, and every wrong variant of it is blocked."""

from pathlib import Path

import pytest
from benchmarks import twins as bench
from benchmarks.measure import BenchmarkOptions


def test_equal_seeds_give_equal_robots(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    for seed in range(3):
        robot = bench.random_chain(seed, tmp_path)
        assert 1 <= len(robot.spec.joint_names) <= 3
        assert robot.path.read_bytes() == bench.random_chain(seed, tmp_path / "again").path.read_bytes()
    assert bench.random_chain(0, tmp_path).path.read_bytes() != bench.random_chain(1, tmp_path).path.read_bytes()


@pytest.mark.exhaustive
def test_the_right_twin_is_accepted_and_the_wrong_ones_are_blocked() -> None:
    told: list[str] = []
    found = {result.name: result.runs for result in bench.run(BenchmarkOptions(quick=True), told.append)}
    assert found == {
        "right_accepted": (1.0,),
        "right_total": (1.0,),
        "wrong_blocked": (float(len(bench.WRONG)),),
        "wrong_total": (float(len(bench.WRONG)),),
        "untested_credible": (0.0,),
        "copies_accepted": (0.0,),
    }, told
