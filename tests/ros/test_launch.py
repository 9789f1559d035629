"""The launch files, built by colcon: the whole chain with the twin as the robot, and both ends of it dying."""

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from ros_world import WAIT_S, RosWorld, Started, eventually

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("colcon_core") is None, reason="needs colcon: pip install colcon-common-extensions"),
]

SOURCE = Path(__file__).parents[2] / "ros" / "colcon"
TASK = "cartpole-swingup"
PHYSAI = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"
ROS2 = "import sys; from ros2cli.cli import main; sys.exit(main())"


def physai(*words: str) -> None:
    subprocess.run([sys.executable, "-c", PHYSAI, *words], check=True, capture_output=True, timeout=10 * WAIT_S)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A robot with a policy of five seconds, which nobody has judged."""
    folder = tmp_path_factory.mktemp("cartpole")
    run, keys, bundle, root = folder / "run", folder / "keys", folder / "policy.physai", folder / "slots"
    physai("train", TASK, "--time-budget-s", "5", "--out", str(run))
    physai("export", str(run))
    physai("keys", "init", str(keys))
    physai("bundle", "pack", str(run), "--out", str(bundle), "--sign", "--key", str(keys / "publisher.key"))
    physai("robot", "setup", "--root", str(root), "--robot", "cartpole", "--trust", str(keys / "trust.json"))
    physai("robot", "install", str(bundle), "--root", str(root), "--activate", "--unsafe-no-verdict")
    return root


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The colcon package, built."""
    folder = tmp_path_factory.mktemp("colcon")
    command = [sys.executable, "-m", "colcon", "build", "--merge-install", "--base-paths", str(SOURCE)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=5 * WAIT_S)
    return folder / "install"


@pytest.fixture
def launched(world: RosWorld, root: Path, prefix: Path) -> Started:
    packages = prefix / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    before = world.environment
    world.environment = {
        **before,
        "AMENT_PREFIX_PATH": f"{prefix}{os.pathsep}{before['AMENT_PREFIX_PATH']}",
        "PYTHONPATH": f"{packages}{os.pathsep}{before['PYTHONPATH']}",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{before['PATH']}",
    }
    parameters = world.folder / "policy.yaml"
    parameters.write_text("/**:\n  ros__parameters:\n    unsafe_no_verdict: true\n    lock_memory: false\n")
    words = (f"task:={TASK}", f"root:={root}", f"params_file:={parameters}")
    started = world.python("-c", ROS2, "launch", "physai_ros", "rehearse.launch.py", *words)
    started.says("active at ")
    return started


def test_the_whole_chain(launched: Started, world: RosWorld) -> None:
    launched.says("commands come")
    nodes = world.ros2("node", "list").stdout
    assert "/physai_policy" in nodes
    assert "/physai_rehearsal" in nodes
    assert world.ros2("lifecycle", "get", "/physai_policy").stdout.startswith("active")
    launched.end(signal.SIGINT)
    text = launched.text()
    assert "Traceback" not in text
    assert "commands obeyed" in text


def test_a_policy_node_that_is_killed_takes_the_launch_down(launched: Started) -> None:
    victims = subprocess.run(["pgrep", "-f", "physai_ros/policy_node"], capture_output=True, text=True).stdout.split()
    mine = [int(pid) for pid in victims if _parent(int(pid)) == launched.process.pid]
    assert mine
    for pid in mine:
        os.kill(pid, signal.SIGKILL)
    launched.says("process[policy_node-2] was required: shutting down")
    eventually(lambda: launched.process.poll() is not None, "the end of the launch")


def test_a_robot_that_is_killed_takes_the_launch_down(launched: Started) -> None:
    found = subprocess.run(["pgrep", "-f", "physai sim ros"], capture_output=True, text=True).stdout.split()
    mine = [int(pid) for pid in found if _parent(int(pid)) == launched.process.pid]
    assert mine
    for pid in mine:
        os.kill(pid, signal.SIGKILL)
    launched.says("process[physai-1] was required: shutting down")
    eventually(lambda: launched.process.poll() is not None, "the end of the launch")


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
