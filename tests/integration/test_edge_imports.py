"""The robot's packages import without torch, a simulator or a web server, and so do all their modules."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EDGE = ("sdk", "deploy_jetson", "ros")

BLOCKER = """
import importlib, sys

OTHERS = ("compute", "sim", "twin", "gates", "train", "cluster", "rlhf", "service")
BLOCKED = ("torch", "mujoco", "warp", "mujoco_warp", "fastapi", *(f"physai.{name}" for name in OTHERS))
# Of ROS 2; where it is missing, the modules that need it are imported up to there.
ROS = ("rclpy", "diagnostic_msgs", "rcl_interfaces", "simulation_interfaces", "std_msgs", "std_srvs")

class Blocker:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if any(name == blocked or name.startswith(blocked + ".") for blocked in BLOCKED):
            raise ImportError(f"the edge must not import {name}")
        return None

sys.meta_path.insert(0, Blocker)
for module in sys.argv[1:]:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not module.startswith("physai.ros.") or error.name not in ROS:
            raise
loaded = [name for name in BLOCKED if name in sys.modules]
assert not loaded, loaded
print(len(sys.argv) - 1, "modules")
"""


def modules(package: str) -> list[str]:
    """Every module below a root, by its file."""
    root = ROOT / package
    files = sorted(path.relative_to(root).with_suffix("") for path in (root / "physai").rglob("*.py"))
    return [".".join(file.parts).removesuffix(".__init__") for file in files]


def import_all(names: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCKER, *names], capture_output=True, text=True, timeout=120)


def test_every_module_of_the_edge_imports_alone() -> None:
    names = [name for package in EDGE for name in modules(package)]
    assert {"physai.sdk", "physai.sdk.contract.policy_contract", "physai.deploy_jetson", "physai.ros"} <= set(names)
    result = import_all(names)
    assert result.stdout == f"{len(names)} modules\n", result.stderr


@pytest.mark.parametrize(
    "name", ["torch", "mujoco", "warp", "fastapi", "physai.train", "physai.sim.tasks", "physai.service"]
)
def test_the_blocker_blocks(name: str) -> None:
    result = import_all([name])
    assert result.returncode == 1
    assert "the edge must not import" in result.stderr
