"""An arm whose zero pose is stretched out gets a home pose in which it can move."""

from pathlib import Path

import mujoco
import numpy as np
import pytest

from physai.sim.robots.importing.importer import import_robot
from physai.sim.robots.importing.pose.posture import bent_home
from physai.sim.robots.spec import chain_joints, home_qpos

AXES = ("0 0 1", "0 1 0", "0 1 0", "0 0 1", "0 1 0", "0 0 1")


def arm(bend: float = 0.0) -> str:
    """Six links one above the other; `bend` turns the third one in its zero pose [rad]."""
    text, end = "", ""
    for number, axis in enumerate(AXES):
        turned = f' euler="0 {bend} 0"' if number == 2 else ""
        text += f'<body name="l{number}" pos="0 0 .2"{turned}><joint name="j{number}" axis="{axis}" range="-2.5 2.5"/>'
        text += '<geom type="capsule" fromto="0 0 .05 0 0 .15" size=".03" mass="1"/>'
        end += "</body>"
    text += '<site name="ee" pos="0 0 .1"/>'
    return f'<mujoco><compiler angle="radian"/><worldbody>{text}{end}</worldbody></mujoco>'


def manipulability(model: mujoco.MjModel, qpos: object) -> float:
    data, jacobian = mujoco.MjData(model), np.zeros((6, model.nv))
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], data.site("ee").id)
    return float(np.prod(np.linalg.svd(jacobian, compute_uv=False)))


def test_a_stretched_arm_is_bent(tmp_path: Path) -> None:
    (tmp_path / "arm.xml").write_text(arm())
    imported = import_robot(tmp_path / "arm.xml", tmp_path / "out")
    model = imported.robot.model
    home = home_qpos(model)
    # The axes of three joints coincide in the zero pose, so that some directions are lost.
    assert manipulability(model, np.zeros(6)) < 1e-9
    assert manipulability(model, home) > 1e-3
    assert np.degrees(home) == pytest.approx(np.round(np.degrees(home) / 45.0) * 45.0, abs=1e-3)
    assert any(line.startswith("home: bent to ") for line in imported.decisions.lines())
    data = mujoco.MjData(model)
    data.qpos[:] = home
    mujoco.mj_forward(model, data)
    assert data.site("ee").xpos[2] > 0.0
    assert data.ncon == 0


def test_an_arm_that_can_move_keeps_its_zero_pose() -> None:
    text = arm(bend=1.3).replace('<body name="l4" pos="0 0 .2"', '<body name="l4" pos="0 0 .2" euler="0 1.2 0"')
    model = mujoco.MjSpec.from_string(text).compile()
    assert bent_home(model, chain_joints(model, 0)) is None
