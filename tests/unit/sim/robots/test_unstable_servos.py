"""Servos that explode at a task's physics step are found before anybody trains on them."""

from pathlib import Path

import pytest

from physai.sim.robots.checks.check import unstable_servos
from physai.sim.robots.loader import load_robot
from physai.sim.tasks.common import compiled
from physai.sim.tasks.registry import BUILT_IN, load_task

ARM = """<mujoco><compiler angle="radian" autolimits="true"/><worldbody><body>
  <joint name="lift" axis="0 1 0" range="-2 2"/><geom type="capsule" fromto="0 0 0 .4 0 0" size=".025" mass="1"/>
  </body></worldbody><actuator><position name="lift" joint="lift" kp="{}" kv="{}" forcerange="-900 900"/></actuator>
  </mujoco>"""


@pytest.mark.parametrize(("gains", "step", "unstable"), [((200, 10), 0.002, False), ((90_000, 10), 0.008, True)])
def test_an_explicit_step_beyond_its_limit(gains: tuple[int, int], step: float, unstable: bool, tmp_path: Path) -> None:
    """A rod of 1 kg and 0.4 m has 0.053 kg·m² about its end: √(90,000 / 0.053) · 0.008 s = 10, stable below 2."""
    (tmp_path / "arm.xml").write_text(ARM.format(*gains))
    robot = load_robot(tmp_path / "arm.xml")
    found = unstable_servos(robot, compiled(robot, physics_dt=step))
    assert [finding.about for finding in found] == (["lift"] if unstable else [])


@pytest.mark.parametrize("name", BUILT_IN)
def test_no_task_of_ours_trembles(name: str) -> None:
    task = load_task(name)
    assert unstable_servos(task.robot, task.model) == []
