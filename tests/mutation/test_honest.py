"""Honest policies: as good as training made them, and none of the gates may call more than one in twenty bad."""

from pathlib import Path

import pytest
from tests.mutation.mutants import bench, pendulum
from tests.mutation.mutants.bench import Trial, blocking, honest_trial

HONEST = 20


def alarms(trial: Trial, folder: Path) -> list[str]:
    """Gates that do not pass, and why."""
    return [f"{gate.gate}: {gate.message}" for gate in blocking(bench.validate(trial, folder))]


@pytest.mark.parametrize("base", ["pusher", pytest.param("reach", marks=pytest.mark.mutation)])
def test_an_honest_policy_passes(base: str, tmp_path: Path) -> None:
    assert alarms(honest_trial(tmp_path, base), tmp_path / "report") == []


@pytest.mark.parametrize("measured_effort", [True, pytest.param(False, marks=pytest.mark.mutation)])
def test_an_honest_twin_passes(measured_effort: bool, tmp_path: Path) -> None:
    """The twin that each wrong one differs from in one thing."""
    trial = pendulum.trial(tmp_path, pendulum.Wrong(measured_effort=measured_effort))
    assert alarms(trial, tmp_path / "report") == []


@pytest.mark.mutation
def test_at_most_one_of_twenty_trained_policies_is_blocked(tmp_path: Path) -> None:
    false_alarms: dict[str, list[str]] = {}
    for number in range(HONEST):
        folder = tmp_path / f"{number:02d}"
        found = alarms(honest_trial(folder, "cartpole", number), folder / "report")
        if found:
            false_alarms[f"cartpole-{number:02d}"] = found
    assert len(false_alarms) <= 1, false_alarms
