"""What the flight recorder writes, read by the commands that judge recordings and calibrate twins."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from physai.deploy_jetson.telemetry.flight.file import flight_file
from physai.deploy_jetson.telemetry.flight.flight_ring import FlightRing, FlightView
from physai.sdk.cli.parsing.parser import Parser
from physai.sdk.transport.protocol import empty_sample
from physai.sim.envs.environment import Environment
from physai.sim.robots import load_robot
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.twin.cli import calibrate_verb as calibrate
from physai.twin.cli import logs
from physai.twin.cli import replay_verb as replay
from physai.twin.logs import read_log

PERIODS = 250
AGE_NS = 2_000_000
"""From a measurement to the command that answers it."""


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("cartpole-swingup")


@pytest.fixture(scope="module")
def recording(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five seconds of a cart-pole that is pushed about, as a runtime would have recorded them."""
    contract = task.contract
    period_ns = round(contract.timing.control_dt * 1e9)
    deadline_ns = round(contract.timing.deadline_s * 1e9)
    epoch_ns = 1_790_000_000 * 10**9
    env = Environment(task, 1, seed=3, num_threads=1)
    sample, sensors = empty_sample(contract), env.reset().sensors
    ring = FlightRing(contract, sample, PERIODS)
    for number in range(PERIODS):
        due = number * period_ns
        for name, values in sensors.items():
            sample.fields[name][:] = values[0]
        force = 6.0 * np.cos(0.25 * number) + 3.0 * np.cos(0.91 * number)
        targets = {"joint_effort_target": np.array([[force]])}
        stamp = epoch_ns + due
        woke = due + AGE_NS
        record = (number, woke + deadline_ns, woke, stamp, AGE_NS, 1, 1, 1, 1000, 0, 0, False, False)
        ring.push(record, targets)
        result = env.step(targets)
        assert not result.done.any()
        sensors = result.sensors
    flight = FlightView(ring.descriptor, contract, PERIODS).last(PERIODS)
    ring.close()
    path = tmp_path_factory.mktemp("recordings") / "flight.mcap"
    path.write_bytes(flight_file(contract, flight, wall_minus_monotonic_ns=epoch_ns, origin={"version": "1"}))
    return path


def run(module: Any, *words: str) -> int:
    parser = Parser(prog="physai")
    module.command.add_arguments(parser)
    return module.command.run(parser.parse([str(word) for word in words]))


def test_what_was_measured_and_sent_comes_back(task: Task, recording: Path) -> None:
    log = read_log(recording, task.robot.spec)
    # Nothing had been commanded before the first measurement, so that one has no place in the log.
    assert log.time == pytest.approx(np.arange(PERIODS - 1) * task.contract.timing.control_dt)
    numbers = np.arange(PERIODS - 1)
    expected = 6.0 * np.cos(0.25 * numbers) + 3.0 * np.cos(0.91 * numbers)
    slider = log.joint_names.index("slider")
    assert log.command[:, slider] == pytest.approx(expected)
    assert log.command_kind == "joint_effort"


def test_logs_check_finds_it_fit(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(logs, "check", str(recording), "--model", "cartpole", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["logs"]
    assert (found["usable"], found["samples"]) == (True, PERIODS - 1)


def test_the_nominal_robot_replays_it(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Within the randomisation of the robot that was recorded, over a quarter of a second each."""
    assert run(replay, "cartpole", str(recording), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    for joint in load_robot("cartpole").spec.joint_names:
        assert found[f"rmse.{joint}"]["value"] < 0.03


def test_a_twin_is_fitted_to_it(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "twin.json"
    # 1: nothing was kept out of the fit to judge the twin by.
    assert run(calibrate, "cartpole", str(recording), "-o", str(output), "--time-budget-s", "1", "--json") == 1
    assert json.loads(capsys.readouterr().out)["hash"] == json.loads(output.read_text())["hash"]
