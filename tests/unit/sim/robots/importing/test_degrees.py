"""An MJCF in degrees, MuJoCo's default, becomes the same robot as one in radians."""

import math
from pathlib import Path

import numpy as np
import pytest

from physai.sim.robots.checks.check import check_robot
from physai.sim.robots.importing.actuation import Servos
from physai.sim.robots.importing.importer import Imported, ImportOptions, import_robot

# As Gymnasium's ant: motors, angles in degrees, and a joint whose range has no zero.
ANT = """<mujoco><compiler {compiler}/><worldbody><body name="torso" pos="0 0 1">{base}<geom size=".1" mass="2"/>
  <body name="thigh" pos="0 .1 0"><joint name="hip" axis="0 0 1" range="{hip}"/>
    <geom type="capsule" size=".02" fromto="0 0 0 .2 0 0" mass=".3"/>
    <body name="shank" pos=".2 0 0"><joint name="ankle" axis="0 1 0" range="{ankle}" {springs}/>
      <geom type="capsule" size=".02" fromto="0 0 0 .2 0 0" mass=".2"/></body></body></body></worldbody>
  <actuator><motor joint="hip" gear="15" ctrlrange="-1 1"/><motor joint="ankle" gear="15" ctrlrange="-1 1"/></actuator>
  </mujoco>"""
DEGREES = {"compiler": "", "hip": "-30 40", "ankle": "30 100", "springs": 'ref="60" springref="40" stiffness="1"'}
RADIANS = {
    "compiler": 'angle="radian"',
    "hip": f"{math.radians(-30)} {math.radians(40)}",
    "ankle": f"{math.radians(30)} {math.radians(100)}",
    "springs": f'ref="{math.radians(60)}" springref="{math.radians(40)}" stiffness="1"',
}


def imported(folder: Path, options: ImportOptions | None = None, /, **values: str) -> Imported:
    folder.mkdir()
    (folder / "r.xml").write_text(ANT.format(**{"base": "", **values}))
    return import_robot(folder / "r.xml", folder / "out", options)


@pytest.mark.parametrize("base", ["", "<freejoint/>"])
def test_servos_take_the_joints_ranges_in_radians(base: str, tmp_path: Path) -> None:
    robot = imported(tmp_path / "a", base=base, **DEGREES).robot
    ranges = np.radians([[-30, 40], [30, 100]])
    assert robot.model.actuator_ctrlrange == pytest.approx(ranges, abs=1e-5)
    assert [joint.position_upper for joint in robot.spec.joints] == pytest.approx(ranges[:, 1], abs=1e-5)
    check = check_robot(robot)
    assert (check.stable, check.moved) == (True, 2), check.findings


@pytest.mark.parametrize(
    "options", [ImportOptions(), ImportOptions(servos=Servos(effort=True)), ImportOptions(fixed=("hip",))]
)
def test_the_model_is_that_of_the_same_file_in_radians(options: ImportOptions, tmp_path: Path) -> None:
    degrees = imported(tmp_path / "a", options, **DEGREES).robot.model
    radians = imported(tmp_path / "b", options, **RADIANS).robot.model
    for name in ("jnt_range", "qpos0", "qpos_spring", "actuator_ctrlrange", "actuator_gainprm", "key_qpos", "key_ctrl"):
        assert getattr(degrees, name) == pytest.approx(getattr(radians, name), rel=1e-4, abs=1e-5), name
