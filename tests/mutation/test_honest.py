"""Honest policies: as good as training made them, and none of the gates may call more than one in twenty bad."""

from pathlib import Path

import pytest
from tests.mutation.mutants import bench, pendulum
from tests.mutation.mutants.bench import Trial, blocking, honest_trial


def alarms(trial: Trial, folder: Path) -> list[str]:
    """Gates that do not pass, and why."""
    return [f"{gate.gate}: {gate.message}" for gate in blocking(bench.validate(trial, folder))]


@pytest.mark.parametrize("base", ["pusher", pytest.param("reach", marks=pytest.mark.mutation)])
def test_an_honest_policy_passes(base: str, tmp_path: Path) -> None:
    assert alarms(honest_trial(tmp_path, base), tmp_path / "report") == []


@pytest.mark.slow
@pytest.mark.parametrize("measured_effort", [True, pytest.param(False, marks=pytest.mark.mutation)])
def test_an_honest_twin_passes(measured_effort: bool, tmp_path: Path) -> None:
    """The twin that each wrong one differs from in one thing."""
    trial = pendulum.trial(tmp_path, pendulum.Wrong(measured_effort=measured_effort))
    assert alarms(trial, tmp_path / "report") == []


@pytest.mark.parametrize(
    ("count", "most"),
    [pytest.param(6, 0, marks=pytest.mark.mutation), pytest.param(20, 1, marks=pytest.mark.exhaustive)],
)
def test_hardly_any_trained_policy_is_blocked(count: int, most: int, tmp_path: Path) -> None:
    false_alarms: dict[str, list[str]] = {}
    for number in range(count):
        folder = tmp_path / f"{number:02d}"
        found = alarms(honest_trial(folder, "cartpole", number), folder / "report")
        if found:
            false_alarms[f"cartpole-{number:02d}"] = found
    assert len(false_alarms) <= most, false_alarms
