"""Robots of ours, written as USD by MuJoCo, come back; what MuJoCo's USD does not hold is named."""

import importlib
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from physai.sim.robots.loader import load_robot

STEPS = 1000
LOST = (
    "does not hold gravcomp, contype, conaffinity, friction of geoms with a material, excludes, contact pairs, "
    "equality constraints, sensors and the integrator implicitfast of an MJCF; add those to the result"
)


def restored(text: str, source: Path) -> Any:
    """The model with what is lost."""
    spec: Any = mujoco.MjSpec.from_string(text)
    original: Any = mujoco.MjSpec.from_file(str(source))
    model = original.compile()
    spec.option.integrator = original.option.integrator
    for body in original.bodies:
        if body.name != "world":
            spec.body(body.name).gravcomp = float(model.body_gravcomp[model.body(body.name).id])
    for geom in original.geoms:
        ours = spec.geom(geom.name)
        for field in ("contype", "conaffinity"):
            setattr(ours, field, int(getattr(model.geom(geom.name), field)[0]))
        ours.friction = model.geom(geom.name).friction
    for exclude in original.excludes:
        spec.add_exclude(bodyname1=exclude.bodyname1, bodyname2=exclude.bodyname2)
    return spec.compile()


def positions(model: Any, start: Any) -> NDArray[np.float64]:
    data, rows = mujoco.MjData(model), list[Any]()
    data.qpos[:] = start.key_qpos[0]
    for step in range(STEPS):
        data.ctrl[:] = start.key_ctrl[0] + 0.2 * np.sin(0.01 * step + np.arange(int(model.nu)))
        mujoco.mj_step(model, data)
        rows.append(data.qpos.copy())
    return np.array(rows)


@pytest.mark.parametrize("name", ["double_pendulum", "ur10e", "so101", "go2"])
def test_a_robot_moves_as_before_with_what_is_named_as_lost(stages: Any, name: str) -> None:
    from physai.foreign.usd.converter import converted

    robot = load_robot(name)
    usd: Any = importlib.import_module("pxr.Usd")
    path = stages.folder / f"{name}.usda"
    usd.Stage.Open(str(robot.path)).Export(str(path))
    text, decisions = converted(path, lambda facts: None)
    assert dict(decisions)["MuJoCo's USD"] == LOST
    original = robot.model
    difference: Any = np.abs(positions(restored(text, robot.path), original) - positions(original, original))
    assert float(difference.max()) < 1e-6


def test_references_of_joints_in_degrees_come_back_in_radians(stages: Any) -> None:
    source = stages.folder / "spring.xml"
    source.write_text(
        '<mujoco model="spring"><worldbody><body name="arm"><joint name="hinge" axis="0 1 0" ref="30" springref="20" '
        'stiffness="3" damping="0.2" range="-10 60"/><geom name="bob" size="0.1" pos="0 0 1"/></body></worldbody>'
        "</mujoco>"
    )
    usd: Any = importlib.import_module("pxr.Usd")
    path = stages.folder / "spring.usda"
    usd.Stage.Open(str(source)).Export(str(path))
    original: Any = mujoco.MjSpec.from_file(str(source))
    before, after = original.compile(), stages.load(path).model
    for name in ("qpos0", "qpos_spring", "jnt_range", "jnt_stiffness", "dof_damping", "body_inertia", "geom_pos"):
        np.testing.assert_allclose(getattr(after, name), getattr(before, name), rtol=1e-6, err_msg=name)


def test_what_the_writer_leaves_out_of_an_equality_is_named(stages: Any) -> None:
    source = stages.folder / "pair.xml"
    source.write_text(
        '<mujoco model="pair"><worldbody><body name="a"><joint name="j"/><geom size="0.1"/></body><body name="b">'
        '<joint name="k"/><geom size="0.1"/></body></worldbody><equality><joint joint1="j" joint2="k"/></equality>'
        "</mujoco>"
    )
    usd: Any = importlib.import_module("pxr.Usd")
    path = stages.folder / "pair.usda"
    usd.Stage.Open(str(source)).Export(str(path))
    read = stages.load(path)
    assert read.model.neq == 0
    assert read.decisions["MuJoCo's USD"] == LOST
