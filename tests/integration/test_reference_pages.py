"""The YAML on the reference pages is read as it stands there."""

import ast
import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from physai.gates.settings import load_gates
from physai.sdk.contract.robot import JointSpec, RobotSpec, SensorField
from physai.sdk.contract.terms import ActionTerm, GaitClock, ObservationTerm
from physai.sim.engines.mujoco import MujocoEngine
from physai.sim.envs.environment import Environment
from physai.sim.robots import load_robot
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.twin.logs import read_log
from physai.twin.model.measured_task import TRAINING_MARGIN, TRAINING_NOISE

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


def rows_of(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its own heading."""
    text = (PAGES / page).read_text(encoding="utf-8").split(f"\n## {heading}\n")[1]
    table = re.search(r"^\|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()]


def kinds_of(term: type[ObservationTerm] | type[ActionTerm]) -> set[str]:
    return set(get_args(term.model_fields["kind"].annotation))


def test_the_kinds_of_observations_are_those_of_the_page_with_their_sizes() -> None:
    contract = load_task("ur10e-reach").contract
    joints, pose = 6, 7
    sizes = {
        "the field's, or one per joint": joints,
        "one per joint": joints,
        "two per joint": 2 * joints,
        "the field's": pose,
        "one per commanded joint": joints,
        "its `size`": 5,
        "its phases": 2,
        "its `values`": 3,
    }
    rows = rows_of("tasks.md", "What the policy sees")
    assert {row[0].strip("`") for row in rows} == kinds_of(ObservationTerm)
    for kind, _, elements, *_ in rows:
        source = {"`sensor`": "joint_pos", "`command`": "ee_pose_target"}.get(kind)
        more: dict[str, Any] = {
            "`function`": {"function": "f", "size": 5, "source": "joint_pos"},
            "`clock`": {"clock": GaitClock(wave="sin", period_s=1.0, phases=(0.0, 1.0))},
            "`constant`": {"values": (1.0, 2.0, 3.0)},
        }.get(kind, {"source": source})
        term = ObservationTerm.model_validate({"name": "x", "kind": kind.strip("`"), **more})
        assert contract.term_width(term) == (sizes.get(elements) or int(elements)), kind


def test_the_kinds_of_actions_are_those_of_the_page() -> None:
    rows = rows_of("tasks.md", "What the policy commands")
    assert {row[0].strip("`") for row in rows} == kinds_of(ActionTerm)
    for kind, _, unit, _ in rows:
        assert unit == ("rad or m" if "joint_pos" in kind else "N·m or N")


def test_the_fields_of_tasks_that_draw_something_exist() -> None:
    names = {name for row in rows_of("tasks.md", "What differs from episode to episode") for name in words(row[0])}
    assert names <= set(Task.__dataclass_fields__)
    text = (PAGES / "tasks.md").read_text(encoding="utf-8")
    assert f"noise of {TRAINING_NOISE:g} times the measured one and delays of up to {TRAINING_MARGIN:g} times" in text


def words(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_the_fields_of_the_page_can_be_randomised() -> None:
    model = load_robot("ur10e").model
    counts = {"body": model.nbody, "degree of freedom": model.nv, "actuator": model.nu, "shape": model.ngeom}
    for names, row, _ in rows_of("tasks.md", "Randomisation"):
        engine = MujocoEngine(model, 2, num_threads=1, parameters=words(names))
        for name in words(names):
            assert engine.parameter(name).shape[:2] == (2, counts[row.split(";")[0]]), name


def test_the_rules_of_the_page_draw_what_their_comments_say() -> None:
    text = (PAGES / "tasks.md").read_text(encoding="utf-8")
    code = re.search(r'^```python title="rules.py"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    assert code is not None
    found: dict[str, Any] = {}
    exec(code[1], found)
    task = replace(load_task("ur10e-reach"), randomisation=found["rules"])
    env = Environment(task, 200, num_threads=1)
    env.reset()
    mass, model = env.engine.parameter("body_mass"), task.model
    nominal = float(model.body_mass[found["wrist"]])
    hand = mass[:, found["wrist"]]
    # Of 200 uniform numbers some lie in the upper and some in the lower tenth.
    assert 0.9 * nominal <= hand.min() < 0.9 * nominal + 0.25
    assert 1.1 * nominal + 1.6 < hand.max() <= 1.1 * nominal + 2.0
    friction = env.engine.parameter("dof_frictionloss")
    assert 0.0 <= friction[:, found["elbow"]].min() < friction[:, found["elbow"]].max() <= 5.0
    assert (friction[:, 0] == model.dof_frictionloss[0]).all()
    gain, bias = env.engine.parameter("actuator_gainprm"), env.engine.parameter("actuator_biasprm")
    np.testing.assert_array_equal(gain[:, :, 0], -bias[:, :, 1])


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
