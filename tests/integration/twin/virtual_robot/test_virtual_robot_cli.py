"""`physai robot simulate` as a user starts it: a process of its own, ended by signals, refused with one line."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import pytest

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.registry import open_transport
from physai.sim.tasks.registry import load_task
from physai.twin.virtual_robot.ending import SILENT_S, EndCondition
from physai.twin.virtual_robot.transport import free_port

WAIT_S = 180.0
TASK = "cartpole-swingup"
NOTHING = {"joint_effort_target": np.zeros((1, 1))}


@pytest.fixture(scope="module")
def contract() -> PolicyContract:
    return load_task(TASK).contract


@contextmanager
def rehearsed(*arguments: str) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "physai.sdk.cli", "robot", "simulate", TASK, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def refused(*arguments: str) -> str:
    """What a refusal says; the process must end with 2."""
    with rehearsed(*arguments) as process:
        _, errors = process.communicate(timeout=WAIT_S)
        assert process.returncode == 2
        return errors


def drive(contract: PolicyContract, port: int, times: int) -> None:
    """A runtime that commands nothing but zeros."""
    transport = open_transport("udp", {"robot": f"127.0.0.1:{port}"})
    transport.open(contract)
    try:
        for _ in range(times):
            assert transport.wait(WAIT_S)
            transport.send(NOTHING, time.time_ns())
    finally:
        transport.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_its_tally(number: signal.Signals, contract: PolicyContract) -> None:
    port = free_port()
    with rehearsed("--transport", "udp", "--set", f"bind=127.0.0.1:{port}", "--json") as process:
        drive(contract, port, 5)
        process.send_signal(number)
        output, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, errors
    tally = json.loads(output)
    assert (tally["task"], tally["fingerprint"], tally["unsafe"]) == (TASK, contract.fingerprint, 0)
    assert 1 <= tally["commands"] <= 5
    assert tally["events"][0]["what"] == "first command"
    assert tally["problems"] == []


def test_it_ends_in_time_and_says_what_it_saw() -> None:
    with rehearsed("--transport", "udp", "--set", f"bind=127.0.0.1:{free_port()}", "--duration-s", "0.3") as process:
        output, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert "cartpole for cartpole-swingup on udp, realtime" in errors
    assert "control periods, 0 commands executed" in output


def test_a_port_in_use_is_told() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        told = refused("--transport", "udp", "--set", f"bind=127.0.0.1:{port}")
    assert f"physai: error: UDP: cannot listen on 127.0.0.1:{port}: Address already in use" in told


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--transport", "dds", "--set", "domain=233"), "DDS domain '233' (option domain or ROS_DOMAIN_ID): expected"),
        (("--transport", "udp", "--set", "bind"), "--set takes KEY=VALUE, got 'bind'"),
        (("--duration-s", "nan"), "argument --duration-s: expected a finite number"),
        (("--linger-s", "nan"), "argument --linger-s: expected a finite number"),
        (("--transport", "sim"), "no transport with a robot endpoint named 'sim'"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], problem: str) -> None:
    assert problem in refused(*arguments)


def drive_on(contract: PolicyContract, port: int, process: subprocess.Popen[str]) -> float:
    """Drives after the robot was told to end; the longest pause between two commands, on a busy machine [s]."""
    transport = open_transport("udp", {"robot": f"127.0.0.1:{port}"})
    transport.open(contract)
    sent: list[float] = []
    try:
        for number in range(60):
            if not transport.wait(1.0):
                break
            transport.send(NOTHING, time.time_ns())
            sent.append(time.monotonic())
            if number == 9:
                process.send_signal(signal.SIGINT)
                process.send_signal(signal.SIGTERM)
    finally:
        transport.close()
    return max(np.diff([*sent, time.monotonic()]).tolist())


def test_a_robot_that_lingers_ends_after_the_one_who_drives_it(contract: PolicyContract) -> None:
    """As in an interrupted launch: the policy brings the robot to rest, then sends no more, then the robot ends."""
    port = free_port()
    with rehearsed("--transport", "udp", "--set", f"bind=127.0.0.1:{port}", "--json", "--linger-s", "60") as process:
        drive(contract, port, 5)
        longest_s = drive_on(contract, port, process)
        if longest_s < SILENT_S:
            assert process.poll() is None, "it left while it was driven"
        output, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, errors
    assert json.loads(output)["commands"] > 5


class Clock:
    """A clock that a test sets [s]."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_end_of_one_that_lingers() -> None:
    clock = Clock()
    ending = EndCondition(8.0, None, now_s=clock, catch=False)
    assert not ending.due(0)
    ending.signalled()
    assert not ending.due(1)
    clock.now_s += 7.9
    ending.signalled()
    assert ending.due(2), "asked a second time"


@pytest.mark.parametrize(
    ("after_s", "commands", "due"), [(0.4, 1, False), (0.6, 1, True), (7.9, 2, False), (8.0, 2, True)]
)
def test_it_goes_on_while_commands_come_but_not_for_ever(after_s: float, commands: int, due: bool) -> None:
    clock = Clock()
    ending = EndCondition(8.0, None, now_s=clock, catch=False)
    assert not ending.due(1)
    ending.signalled()
    clock.now_s += after_s
    assert ending.due(commands) is due


def test_one_that_does_not_linger_ends_at_once() -> None:
    ending = EndCondition(0.0, None, catch=False)
    assert not ending.due(1)
    ending.signalled()
    assert ending.due(2)
