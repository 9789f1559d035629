"""The transport `sim`: the twin in the runtime's process, and in another one behind UDP and DDS."""

import os
import signal
import time
from collections.abc import Generator
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from physai.sdk.base.errors import UnknownNameError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import Transport, TransportError
from physai.sdk.transport.registry import open_transport
from physai.sim.tasks.registry import load_task
from physai.twin.virtual_robot import transport as sim_transport
from physai.twin.virtual_robot.transport import OWN_DOMAINS, ProcessTransport, SimTransport

WAIT_S = 180.0


@pytest.fixture(scope="module")
def contract() -> PolicyContract:
    return load_task("cartpole-swingup").contract


@pytest.fixture
def lockstep(contract: PolicyContract) -> Generator[SimTransport]:
    transport = open_transport("sim", {"clock": "lockstep", "seed": "3"})
    assert isinstance(transport, SimTransport)
    transport.open(contract)
    yield transport
    transport.close()


def force(newton: float) -> dict[str, np.ndarray]:
    return {"joint_effort_target": np.array([[newton]])}


def drive(transport: Transport, times: int) -> None:
    """Pushes the cart to the right, once per sample."""
    for _ in range(times):
        assert transport.wait(WAIT_S), (transport.missing(), transport.problems())
        transport.send(force(1.0), time.time_ns())


def test_a_period_passes_with_each_command(lockstep: SimTransport) -> None:
    drive(lockstep, 20)
    assert lockstep.wait(WAIT_S)
    assert (lockstep.tally.periods, lockstep.tally.commands) == (20, 20)
    assert lockstep.sample().sequence >= 21
    assert lockstep.missing() == ()
    assert lockstep.problems() == ()


def test_time_stands_still_without_commands_and_the_sample_stays_young(lockstep: SimTransport) -> None:
    assert lockstep.wait(WAIT_S)
    first = {name: values.copy() for name, values in lockstep.sample().fields.items()}
    stamp_ns = lockstep.sample().stamp_ns
    before_ns = 0
    for _ in range(4):
        before_ns = time.time_ns()
        assert lockstep.wait(WAIT_S)
    assert lockstep.sample().stamp_ns > stamp_ns
    # The task assumes no sensor delay.
    assert before_ns <= lockstep.sample().stamp_ns <= time.time_ns()
    assert lockstep.tally.periods == 0
    for name, values in first.items():
        np.testing.assert_array_equal(lockstep.sample().fields[name], values)


def test_equal_seeds_give_equal_runs(contract: PolicyContract) -> None:
    ends: list[np.ndarray] = []
    for _ in range(2):
        transport = open_transport("sim", {"clock": "lockstep", "seed": "11"})
        transport.open(contract)
        drive(transport, 30)
        assert transport.wait(WAIT_S)
        ends.append(np.concatenate(list(transport.sample().fields.values())))
        transport.close()
    np.testing.assert_array_equal(ends[0], ends[1])


def test_an_unsafe_command_is_counted_and_told(lockstep: SimTransport) -> None:
    lockstep.send(force(float("nan")), time.time_ns())
    lockstep.poll()
    assert lockstep.tally.unsafe == 1
    assert lockstep.problems() == ("sim: rejected 1 commands: not finite or outside the safety envelope",)


def test_realtime_moves_with_the_clock(contract: PolicyContract) -> None:
    transport = open_transport("sim", {})
    assert isinstance(transport, SimTransport)
    before_ns = time.time_ns()
    transport.open(contract)
    drive(transport, 1)
    first_ns = transport.sample().stamp_ns
    drive(transport, 9)
    tenth_ns = transport.sample().stamp_ns
    # The first sample is there at once, each of the nine after it a period of 20 ms later; by their stamps, as this
    # process may stand still at any place.
    slack_ns = 5_000_000
    assert tenth_ns - first_ns >= 9 * 20_000_000 - slack_ns
    assert before_ns - slack_ns <= first_ns
    assert tenth_ns <= time.time_ns()
    assert transport.tally.periods >= 9
    assert transport.tally.commands >= 8
    transport.close()


def test_states(contract: PolicyContract) -> None:
    transport = open_transport("sim", {})
    with pytest.raises(TransportError, match="the transport sim is not open"):
        transport.poll()
    transport.open(contract)
    with pytest.raises(TransportError, match="is already open"):
        transport.open(contract)
    transport.close()
    transport.close()
    assert transport.problems() == ()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"clock": "real"}, "option clock: 'real', expected realtime or lockstep"),
        ({"noise": "0"}, "option noise: '0', expected task or none"),
        ({"seed": "-1"}, "option seed: '-1', expected 0 … 4294967295"),
        ({"over.bind": "127.0.0.1:1"}, "options with the prefix `over.` need the option over"),
    ],
)
def test_options_that_are_none(options: dict[str, str], problem: str) -> None:
    with pytest.raises(TransportError, match=problem):
        open_transport("sim", options)


def test_names_that_are_none() -> None:
    with pytest.raises(UnknownNameError, match="no option of transport sim named 'sed'; did you mean seed"):
        open_transport("sim", {"sed": "1"})
    with pytest.raises(UnknownNameError, match="no transport with a robot endpoint named 'sim'"):
        open_transport("sim", {"over": "sim"})


def test_without_noise_a_robot_at_rest_is_measured_at_rest() -> None:
    """With the noise of its task, of 0.3 rad/s per joint, it never is."""
    greatest: dict[str, float] = {}
    for noise in ("task", "none"):
        task, robot = sim_transport.simulated_robot(None, {"task": "go2-velocity", "noise": noise}, seed=0)
        robot.advance(round(4.0 / task.contract.timing.physics_dt))
        robot.measure()
        greatest[noise] = float(np.abs(robot.fields["joint_vel"]).max())
    assert greatest["none"] < 0.1 < greatest["task"]


def test_another_task_than_the_policys_is_refused(contract: PolicyContract) -> None:
    transport = open_transport("sim", {"task": "ur10e-reach"})
    with pytest.raises(TransportError, match="the contract of task ur10e-reach differs from the policy's"):
        transport.open(contract)


def other_process(transport: ProcessTransport) -> int:
    process = transport.process
    assert process is not None
    return process.pid


@pytest.mark.parametrize("over", ["udp", "dds"])
def test_a_twin_in_another_process(over: str, contract: PolicyContract, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim_transport, "STOP_S", WAIT_S)
    if over == "dds":
        pytest.importorskip("cyclonedds")
    transport = open_transport("sim", {"over": over, "clock": "lockstep"})
    assert isinstance(transport, ProcessTransport)
    transport.open(contract)
    pid = other_process(transport)
    try:
        drive(transport, 20)
        assert transport.wait(WAIT_S)
        assert transport.missing() == ()
    finally:
        transport.close()
    assert transport.tally is not None
    assert transport.tally["fingerprint"] == contract.fingerprint
    # A sample that is sent again may be answered twice.
    assert transport.tally["periods"] == transport.tally["commands"] >= 20
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_other_process_is_killed(contract: PolicyContract) -> None:
    transport = open_transport("sim", {"over": "udp", "clock": "lockstep"})
    assert isinstance(transport, ProcessTransport)
    transport.open(contract)
    try:
        drive(transport, 2)
        os.kill(other_process(transport), signal.SIGKILL)
        with pytest.raises(TransportError, match="its subprocess exited with code -9"):
            # A sample that it sent before may still be waiting.
            all(transport.wait(WAIT_S) for _ in range(100))
        assert "sim: the subprocess exited with code -9" in transport.problems()
    finally:
        transport.close()
    assert transport.tally is None


def test_the_other_process_cannot_start(
    contract: PolicyContract, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    transport = open_transport("sim", {"over": "udp", "twin": str(tmp_path / "twin.json")})
    transport.open(contract)
    try:
        with pytest.raises(TransportError, match="its subprocess exited with code 2"):
            transport.wait(WAIT_S)
    finally:
        transport.close()
    assert "twin.json" in capfd.readouterr().err


def test_a_rehearsal_stays_apart_from_robots(contract: PolicyContract, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cyclonedds")
    monkeypatch.setenv("ROS_DOMAIN_ID", "3")
    transport = open_transport("sim", {"over": "dds"})
    assert isinstance(transport, ProcessTransport)
    transport.open(contract)
    try:
        assert transport.process is not None
        words = [str(word) for word in cast("list[str]", transport.process.args)]
    finally:
        transport.close()
    assert "range=LOCALHOST" in words
    (domain,) = (int(word.removeprefix("domain=")) for word in words if word.startswith("domain="))
    assert domain in OWN_DOMAINS
