"""What is written into a film, and the floor and sky of robots whose file has none."""

from pathlib import Path

import mujoco
import numpy as np
from tests.support.opengl import needs_opengl

from physai.sim.playback.labels import FilmLabels
from physai.sim.playback.player import Player
from physai.sim.playback.rendering import OffscreenRenderer, missing_floor
from physai.sim.policies.scripted import ScriptedPolicy
from physai.sim.robots.loader import load_robot
from physai.sim.robots.spec import home_qpos
from physai.sim.tasks.registry import load_task

LONE = """<mujoco><compiler angle="radian" autolimits="true"/><worldbody><body pos="0 0 .5">
  <joint name="hinge" axis="0 1 0" range="-1 1"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass="1"/></body></worldbody>
  <actuator><motor name="hinge" joint="hinge" forcerange="-1 1"/></actuator></mujoco>"""


def test_time_commands_and_successes_are_counted_as_the_film_goes_on() -> None:
    task = load_task("ur10e-reach")
    labels, seen = FilmLabels(task.contract.command.fields), list[dict[str, str]]()
    player = Player(ScriptedPolicy(task.contract, "zero"), task, episodes=1, randomise=False)
    moments = list(player)
    for moment in moments:
        seen.append(dict(labels.at(moment, moment.time_s)))
        labels.add(moment)
    target = seen[0]["ee_pose_target"]
    assert target.endswith(" m")
    assert len(target.split()) == 4  # x, y, z and the unit
    assert (seen[0]["episode"], seen[0]["time"]) == ("1", "0.0 s")
    assert "succeeded" not in seen[0]
    last = dict(labels.at(moments[-1], 11.96))
    assert last["time"] == "11.9 s"
    # Every command is judged once, and an arm that does not move reaches none.
    assert last["succeeded"] == f"0 of {player.outcomes[0].judged}"
    assert player.outcomes[0].judged == 3


@needs_opengl
def test_labels_darken_the_upper_left_corner_only() -> None:
    robot = load_robot("cartpole")
    with OffscreenRenderer(robot.model, width=320, height=240) as renderer:
        home = home_qpos(robot.model)
        plain = renderer.render(home).astype(int)
        written = renderer.render(home, labels=[("time", "1.0 s")]).astype(int)
    changed = np.abs(written - plain).sum(axis=2) > 30
    assert changed[:60, :120].mean() > 0.1
    assert not changed[120:].any()
    assert not changed[:, 200:].any()


@needs_opengl
def test_a_robot_without_sky_light_and_floor_is_not_in_the_dark(tmp_path: Path) -> None:
    (tmp_path / "lone.xml").write_text(LONE)
    robot = load_robot(tmp_path / "lone.xml")
    home = home_qpos(robot.model)
    # The tip of the capsule: 0.5 - 0.3 - 0.03 m.
    assert np.isclose(missing_floor(robot.model, home) or 0.0, 0.17)
    with OffscreenRenderer(robot.model, width=160, height=120) as renderer:
        image = renderer.render(home).astype(int)
    assert image[:5].mean() > 120, "sky"
    assert image[-5:].mean() > 120, "floor"
    # Nothing that the physics or a task counts has changed its number.
    plain = mujoco.MjSpec.from_string(LONE).compile()
    assert (robot.model.nbody, robot.model.ngeom) == (plain.nbody, plain.ngeom)


def test_robots_that_fall_or_have_a_floor_get_none() -> None:
    for name in ("go2", "ur10e"):
        model = load_robot(name).model
        assert missing_floor(model, home_qpos(model)) is None
