"""What a team is: tasks of single robots, found again in one model; what does not fit is refused."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from physai.sdk.base.errors import TaskError, UnknownNameError
from physai.sim.tasks.pendulums.cartpole import cartpole_swingup
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Randomise, Task
from physai.sim.teams.cartpoles import RAILS_APART, tethered_cartpoles
from physai.sim.teams.team import Team, robot_rows, team_model
from physai.sim.teams.team_environment import TeamEnvironment
from physai.sim.teams.team_registry import load_team, save_team, team_names, team_of

TASK = cartpole_swingup()
PLACES = {"left": (0.0, 0.4, 0.0), "right": (0.0, -0.4, 0.0)}
PAIR = {"left": TASK, "right": TASK}


def team(**changes: Any) -> Team:
    return replace(tethered_cartpoles(math.inf), **changes)


def test_a_member_has_the_contract_that_its_robot_has_alone() -> None:
    made = tethered_cartpoles()
    assert {task.contract.fingerprint for task in made.members.values()} == {TASK.contract.fingerprint}
    assert [joint.name for joint in made.members["right"].contract.robot.joints] == ["slider", "pole"]
    assert made.critic_size == 10


def test_each_robot_is_found_in_the_model() -> None:
    left, right = (robot_rows(tethered_cartpoles(), name) for name in ("left", "right"))
    assert (left.qpos, left.qvel, left.ctrl) == (slice(0, 2), slice(0, 2), slice(0, 1))
    assert (right.qpos, right.qvel, right.ctrl) == (slice(2, 4), slice(2, 4), slice(1, 2))
    # World, then base, cart and pole of each.
    assert (left.team["body"], right.team["body"]) == ([1, 2, 3], [4, 5, 6])
    assert left.own["body"] == right.own["body"] == [1, 2, 3]


def test_the_rope_is_as_long_as_its_slack_and_the_rails_need() -> None:
    model = tethered_cartpoles(0.6).model
    assert model.tendon_range[0, 1] == pytest.approx(1.0)  # 0.8 m across and 0.6 m along: a 3-4-5 triangle
    assert RAILS_APART == 0.8
    assert tethered_cartpoles(math.inf).model.ntendon == 0


@pytest.mark.parametrize("slack", [0.0, -1.0, math.nan])
def test_a_rope_without_length_is_refused(slack: float) -> None:
    with pytest.raises(TaskError, match=f"slack of the rope is {slack}"):
        tethered_cartpoles(slack)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"left": TASK}, "2 to 16 members, got 1"),
        ({"Left": TASK, "right": TASK}, "'Left' names no member"),
        ({"left": TASK, "right": load_task("ur10e-reach")}, "member right: the task ur10e-reach reads .* joints only"),
        ({"left": TASK, "right": replace(TASK, episode_length_s=5.0)}, "episode length .* is 10, of .* 5"),
        ({"left": TASK, "arm": TASK}, "its model has no arm_base"),
    ],
)
def test_members_that_do_not_fit_are_refused(members: dict[str, Task], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        team(members=members)


def test_a_robot_that_is_not_that_of_its_task_is_refused() -> None:
    heavier = TASK.robot.model_spec.copy()
    heavier.body("cart").mass = 2.0
    other = replace(TASK, robot=replace(TASK.robot, model_spec=heavier))
    with pytest.raises(TaskError, match="body_mass of right is not that of the task cartpole-swingup"):
        team(model=team_model({"left": TASK, "right": other}, PLACES))


def test_places_and_physics_are_checked() -> None:
    with pytest.raises(TaskError, match=r"needs a place for each; places are given for \['left'\]"):
        team_model(PAIR, {"left": (0.0, 0.0, 0.0)})
    with pytest.raises(TaskError, match=r"member left: its place is .*nan"):
        team_model(PAIR, {**PLACES, "left": (math.nan, 0.0, 0.0)})
    falling = TASK.robot.model_spec.copy()
    falling.option.gravity = [0.0, 0.0, -1.62]
    moon = replace(TASK, robot=replace(TASK.robot, model_spec=falling), model=falling.compile())
    with pytest.raises(TaskError, match=r"member right: its physics has the gravity .*1\.62"):
        team_model({"left": TASK, "right": moon}, PLACES)

    def nowhere(spec: mujoco.MjSpec) -> None:
        spec.add_tendon(name="rope").wrap_site("nothing")

    with pytest.raises(TaskError, match="the team of left, right does not compile"):
        team_model(PAIR, PLACES, couple=nowhere)


def test_what_depends_on_a_robots_place_is_not_randomised() -> None:
    moved = replace(TASK, randomisation=(Randomise(field="body_pos", operation="add", lower=0.0, upper=0.1),))
    with pytest.raises(TaskError, match="body_pos of left is not that of the task"):
        TeamEnvironment(team(members={"left": moved, "right": TASK}), 2)
    other = replace(TASK, randomisation=(Randomise(field="light_diffuse", operation="scale", lower=1.0, upper=1.0),))
    with pytest.raises(TaskError, match="light_diffuse is not of a robot's bodies"):
        TeamEnvironment(team(members={"left": other, "right": TASK}), 2)


def test_every_built_in_team_loads() -> None:
    assert [load_team(name).name for name in team_names()] == list(team_names())
    with pytest.raises(UnknownNameError, match="cartpoles-tethered"):
        load_team("cartpoles-tetherd")


def test_a_folder_names_its_team(tmp_path: Path) -> None:
    save_team(tethered_cartpoles(), tmp_path)
    assert team_of(tmp_path).name == "cartpoles-tethered"
    for text, message in [
        ('{"format_version": 1, "team": "mine", "members": ["a", "b"]}', "team 'mine', which is not built in"),
        ('{"format_version": 1, "team": "cartpoles-tethered", "members": ["a", "b"]}', r"has the members \('a', 'b'\)"),
        ('{"format_version": 1, "team": "x", "members": ["../a", "b"]}', "members.0"),
        ("[" * 100, "nest"),
    ]:
        (tmp_path / "team.json").write_text(text)
        with pytest.raises(TaskError, match=message):
            team_of(tmp_path)


def test_the_options_of_the_physics_are_those_of_the_robots() -> None:
    model, own = tethered_cartpoles().model, TASK.model
    for name in ("timestep", "integrator", "disableflags", "solver", "tolerance"):
        assert np.array_equal(getattr(model.opt, name), getattr(own.opt, name)), name
