"""The YAML on the reference pages is read as it stands there."""

import ast
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from physai.sdk.contract.robot import JointSpec, RobotSpec, SensorField
from physai.sim.gates.settings import load_gates
from physai.sim.logs import read_log

PAGES = Path(__file__).parents[2] / "docs" / "reference"


def yaml_of(page: str) -> str:
    found = re.search(r"^```yaml\n(.*?)^```$", (PAGES / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_gates_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "gates.yaml").write_text(yaml_of("gates.md"))
    settings = load_gates(tmp_path / "gates.yaml")
    assert settings.success.target == 0.95
    assert settings.robustness.payload_fraction == 0.1


def test_the_column_map_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "columns.yaml").write_text(yaml_of("column-map.md"))
    t = np.arange(0.0, 2.0, 0.002)
    columns = {"t": 1e3 * t, "q1": np.degrees(np.sin(3 * t)), "dq1": -3 * np.cos(3 * t), "tau1": t, "u1": t}
    table = np.column_stack([*columns.values(), np.cos(3 * t), -3 * np.sin(3 * t)])
    np.savetxt(tmp_path / "log.csv", table, delimiter=",", header=",".join([*columns, "q2", "dq2"]), comments="")
    joints = tuple(JointSpec(name=name, kind="continuous", effort_limit=5.0) for name in ("shoulder", "elbow"))
    units = {"joint_pos": "rad", "joint_vel": "rad/s", "joint_effort": "N*m"}
    sensors = tuple(SensorField(name=name, size=2, unit=unit) for name, unit in units.items())
    log = read_log(tmp_path / "log.csv", RobotSpec(name="arm", base="fixed", joints=joints, sensors=sensors))
    assert log.driven == (True, False)
    assert log.joint_pos[:, 0] == pytest.approx(0.1 - np.sin(3 * t), abs=1e-6)


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_what_a_page_lists_exists(page: Path) -> None:
    """MkDocs leaves out a member that is gone without a word."""
    text = page.read_text(encoding="utf-8")
    for module, options in re.findall(r"^::: ([\w.]+)\n((?:    .*\n)*)", text, re.MULTILINE):
        source = importlib.util.find_spec(module)
        assert source is not None, module
        tree = ast.parse(Path(source.origin or "").read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        listed = re.search(r"members: \[(.*?)\]", options)
        missing = {name.strip() for name in listed[1].split(",")} - defined if listed else set[str]()
        assert not missing, f"{module}: {missing}"
