"""`physai robot run` beside `physai robot simulate`: every process a user's, over UDP, in one process and in two."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from physai.deploy_jetson import run
from physai.sdk.base.errors import PhysaiError
from physai.sim.tasks.registry import load_task
from physai.train.onnx_export.export import export_policy
from physai.train.runners.runner import build_graph
from physai.train.settings.config import TrainConfig
from physai.twin.virtual_robot.transport import free_port

TASK = "cartpole-swingup"
PATIENCE_S = 240.0
MOST_TRIES = 8
"""Of an installation on a machine so busy that the robot's latency self-test fails, as it should."""

PROGRAM = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"

pytestmark = pytest.mark.slow

Process = subprocess.Popen[str]


def physai(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


@contextmanager
def started(log: Path, *words: str) -> Generator[Process]:
    """A verb in the background, its standard error in a file."""
    with log.open("w") as errors:
        command = [sys.executable, "-c", PROGRAM, *words]
        process: Process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def wait_for(log: Path, text: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while text not in log.read_text():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)


def ended(process: Process) -> dict[str, Any]:
    """What it printed; it must end by itself."""
    output, _ = process.communicate(timeout=PATIENCE_S)
    found: dict[str, Any] = json.loads(output)
    return found


@pytest.fixture(autouse=True)
def _no_stop(root: Path) -> None:  # pyright: ignore[reportUnusedFunction]
    """A stop of one test, whose robot ended, binds no other test of the tree."""
    (root / "stop").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A robot's tree with a policy that does nothing good."""
    folder = tmp_path_factory.mktemp("robot")
    task = load_task(TASK)
    export_policy(build_graph(task, TrainConfig(hidden=(8,))), task, folder / "export", provenance={}, states=10)
    keys, bundle, tree = folder / "keys", folder / "policy.physai", folder / "tree"
    for words in (
        ("keys", "init", str(keys)),
        ("bundle", "pack", str(folder / "export"), "-o", str(bundle), "--sign", "--key", str(keys / "publisher.key")),
        ("robot", "setup", "--root", str(tree), "--robot", "cartpole", "--trust", str(keys / "trust.json")),
    ):
        made = physai(*words)
        assert made.returncode == 0, made.stderr
    for _ in range(MOST_TRIES):
        made = physai("robot", "install", str(bundle), "--root", str(tree), "--activate", "--unsafe-no-verdict")
        if "ticks take up to" not in made.stderr:
            break
    assert made.returncode == 0, made.stderr
    return tree


@pytest.fixture
def port() -> int:
    return free_port()


def runtime(root: Path, *words: str) -> tuple[str, ...]:
    return ("robot", "run", "--root", str(root), "--unsafe-no-verdict", "--json", *words)


def robot(port: int) -> tuple[str, ...]:
    return ("robot", "simulate", TASK, "--transport", "udp", "--set", f"bind=127.0.0.1:{port}", "--json")


def over_udp(port: int) -> tuple[str, ...]:
    return ("--transport", "udp", "--set", f"robot=127.0.0.1:{port}")


@pytest.mark.parametrize("runtime_first", [True, False])
def test_over_udp_whoever_starts_first(root: Path, port: int, tmp_path: Path, runtime_first: bool) -> None:
    verbs = [runtime(root, *over_udp(port), "--duration-s", "2"), robot(port)]
    with (
        started(tmp_path / "first", *verbs[not runtime_first]) as first,
        started(tmp_path / "second", *verbs[runtime_first]) as second,
    ):
        driving, playing = (first, second) if runtime_first else (second, first)
        found = ended(driving)
        playing.send_signal(signal.SIGINT)
        seen = ended(playing)
    assert found["ticks"] > 50
    assert seen["commands"] > 50
    assert (seen["unsafe"], playing.returncode) == (0, 0)


def test_a_robot_that_is_not_there_is_waited_for_by_name(root: Path, port: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with started(log, *runtime(root, *over_udp(port))) as driving:
        wait_for(log, f"UDP: greeted 127.0.0.1:{port}, nothing has been heard from it")
        wait_for(log, "waiting for joint_pos (for ")
        driving.send_signal(signal.SIGINT)
        found = ended(driving)
    assert (found["end"], found["ticks"], driving.returncode) == ("shutdown", 0, 0)


def test_a_robot_that_is_killed_stops_the_runtime(root: Path, port: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with started(log, *runtime(root, *over_udp(port))) as driving:
        with started(tmp_path / "robot", *robot(port)):
            wait_for(log, "active at 50 Hz")
        wait_for(log, "sensor stale")
        driving.send_signal(signal.SIGINT)
        found = ended(driving)
    assert (found["end"], driving.returncode) == ("shutdown", 1)


def test_a_runtime_that_is_killed_is_missed_and_replaced(root: Path, port: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with started(tmp_path / "robot", *robot(port)) as playing:
        with started(log, *runtime(root, *over_udp(port))) as driving:
            wait_for(log, "active at 50 Hz")
            time.sleep(0.5)
            os.kill(driving.pid, signal.SIGKILL)
            driving.wait()
        time.sleep(0.5)
        with started(log, *runtime(root, *over_udp(port), "--duration-s", "1")) as driving:
            ended(driving)
        playing.send_signal(signal.SIGINT)
        seen = ended(playing)
    assert seen["silences"] >= 1
    assert [event["what"] for event in seen["events"]].count("commands again") >= 1
    # The watchdog of the killed runtime speaks next, and the new runtime is not heard before it has ended.
    assert any(text.startswith("UDP targets: the sender started anew") for text in seen["problems"])


@pytest.mark.parametrize("options", [(), ("--set", "clock=lockstep"), ("--set", "over=udp"), ("--set", "over=dds")])
def test_the_twin_as_transport(root: Path, port: int, tmp_path: Path, options: tuple[str, ...]) -> None:
    more = ("--set", f"over.bind=127.0.0.1:{port}") if "over=udp" in options else ()
    log = tmp_path / "log"
    with started(log, *runtime(root, "--transport", "sim", *options, *more, "--duration-s", "2")) as driving:
        found = ended(driving)
    assert found["end"] == "finished", log.read_text()
    assert found["ticks"] > 50
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", port))


FROM_PYTHON = """
import signal, sys
from pathlib import Path
from physai.deploy_jetson import run
from physai.sdk import PhysaiError
from physai.sdk.transport.registry import open_transport

root, before = Path(sys.argv[1]), signal.getsignal(signal.SIGINT)
try:
    run(root, "sim", seconds=1.0)
except PhysaiError as error:
    print("refused:", error)
transport = open_transport("sim", {"clock": "lockstep"})
driven = run(root.parent / "policy.physai", transport, tree=root, unsafe_no_verdict=True, seconds=1.0)
assert signal.getsignal(signal.SIGINT) is before
print("ended:", driven.end.value, driven.summary.counts.ticks)
"""
"""In a process of its own: a runtime locks the memory of its process and keeps it so."""


def test_from_python_a_bundle_runs_over_a_transport_object(root: Path) -> None:
    """`physai.deploy_jetson.run` installs what is not installed, drives, and leaves the signals as they were."""
    command = [sys.executable, "-c", FROM_PYTHON, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    refused, ended_line = (line for line in done.stdout.splitlines() if line.startswith(("refused:", "ended:")))
    assert "verdict" in refused
    assert ended_line.startswith("ended: finished ")
    assert int(ended_line.split()[-1]) > 25
    assert "active at 50 Hz" in done.stdout


def test_from_python_a_path_that_is_neither_tree_nor_bundle(root: Path, tmp_path: Path) -> None:
    with pytest.raises(PhysaiError, match="neither a robot's tree nor a bundle"):
        run(tmp_path / "nothing", "sim")
    with pytest.raises(PhysaiError, match="name the robot's tree"):
        run(root.parent / "policy.physai", "sim")
