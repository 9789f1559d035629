"""A team in a film: the episodes of `physai eval`, moment by moment, with all that is in the scene."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.opengl import needs_opengl

from physai.sdk.base.errors import TaskError
from physai.sim.playback.moment import Moment
from physai.sim.playback.player import TeamPlayer, episode_seed
from physai.sim.playback.rendering import OffscreenRenderer
from physai.sim.playback.video import Film
from physai.sim.policies.scripted import ScriptedPolicy
from physai.sim.robots.spec import home_qpos
from physai.sim.tasks.task import Success, Task, WorldView
from physai.sim.teams.cartpoles import tethered_cartpoles
from physai.sim.teams.team import Team
from physai.sim.teams.team_environment import TeamEnvironment
from physai.sim.teams.team_evaluate import play_team


class Swing(ScriptedPolicy):
    """Pushes a cart to where its pole hangs."""

    def __init__(self, task: Task, gain: float) -> None:
        super().__init__(task.contract, "zero")
        self._gain = gain

    def __call__(self, sensors: Mapping[str, Any], commands: Mapping[str, Any]) -> dict[str, Any]:
        return {"joint_effort_target": (self._gain * np.sin(sensors["joint_pos"][:, 1:])).astype(np.float32)}


def place(view: WorldView) -> Any:
    return view.joint_pos[:, 0]


def right_of_the_middle(view: WorldView) -> Any:
    return place(view) > 0.0


def short_team() -> Team:
    team = tethered_cartpoles(0.6)
    success = Success(condition=right_of_the_middle, text="the cart is right of the middle")
    changes: dict[str, Any] = {"episode_length_s": 0.5, "success": success, "metrics": {"place_m": place}}
    members = {name: replace(task, **changes) for name, task in team.members.items()}
    return replace(team, members=members)


TEAM = short_team()


def policies() -> dict[str, Swing]:
    return {"left": Swing(TEAM.members["left"], 8.0), "right": Swing(TEAM.members["right"], -8.0)}


def moments(player: TeamPlayer) -> list[Moment]:
    return list(player)


@pytest.mark.parametrize("randomise", [True, False])
def test_its_episodes_are_those_of_an_evaluation(randomise: bool) -> None:
    evaluated = play_team(policies(), TEAM, episodes=12, randomise=randomise)
    # In the order that is not the team's.
    player = TeamPlayer(dict(reversed(policies().items())), TEAM, episodes=12, randomise=randomise)
    moments(player)
    assert tuple(outcome.success for outcome in player.outcomes) == evaluated.together
    assert len(set(evaluated.together)) == 2, "some succeed"
    for name, episodes in evaluated.members.items():
        places = [outcome.metrics[f"{name}/place_m"] for outcome in player.outcomes]
        assert np.mean(places) == pytest.approx(episodes.metrics["place_m"], abs=1e-9)


def test_moments_are_what_happens_in_the_worlds_of_the_team() -> None:
    shown = moments(TeamPlayer(policies(), TEAM, episodes=1, seed=5))
    worlds, acting = TeamEnvironment(TEAM, 1), policies()
    now = worlds.reset({name: episode_seed(5, 0, member=index) for index, name in enumerate(acting)})
    for policy in acting.values():
        policy.reset(1)
    total = 0.0
    for moment in shown[:-1]:
        assert moment.sensors["left/joint_pos"].tolist() == now["left"].sensors["joint_pos"][0].tolist()
        assert moment.sensors["right/joint_pos"].tolist() == now["right"].sensors["joint_pos"][0].tolist()
        both = np.concatenate([worlds.members[name].view.joint_pos[0] for name in acting])
        assert sorted(moment.qpos) == sorted(both)
        now = worlds.step({name: policy(now[name].sensors, now[name].commands) for name, policy in acting.items()})
        total += sum(float(result.reward[0]) for result in now.values())
    last = shown[-1]
    assert last.outcome is not None
    assert last.outcome.total_reward == pytest.approx(total)
    assert (last.outcome.ended, last.outcome.length_s, last.targets) == ("time", pytest.approx(0.5), {})
    # The state in which the episode ended, not the one that the next begins with.
    assert np.abs(last.qpos - shown[-2].qpos).max() < 0.2
    assert {*shown[0].targets} == {"left/joint_effort_target", "right/joint_effort_target"}


def test_what_it_cannot_play_is_refused() -> None:
    one = policies()["left"]
    for given, message in (
        ({"left": one}, "needs a policy for each of left, right, got policies for left"),
        ({"left": one, "right": one}, "two members share one policy object"),
    ):
        with pytest.raises(TaskError, match=message):
            TeamPlayer(given, TEAM)
    with pytest.raises(TaskError, match="at least one episode must be played, got 0"):
        TeamPlayer(policies(), TEAM, episodes=0)


@needs_opengl
def test_a_film_holds_both_robots_and_their_rope(tmp_path: Path) -> None:
    with Film(tmp_path / "pair.mp4", TEAM, width=320, height=240, labelled=False) as camera:
        for moment in TeamPlayer(policies(), TEAM, episodes=1):
            camera.add(moment)
        frame = camera.image.astype(int)
    # The left robot's part of the picture shows an orange pole, the right one's another.
    orange = (frame[..., 0] > 150) & (frame[..., 2] < 90)
    columns = np.flatnonzero(orange.any(axis=0))
    assert np.diff(columns).max() > 10, "two poles, apart"
    home = home_qpos(TEAM.model)
    pictures: list[Any] = []
    for team in (TEAM, tethered_cartpoles(float("inf"))):
        with OffscreenRenderer(team.model, width=320, height=240, poses=[home]) as renderer:
            renderer.render(home)
            pictures.append(renderer.render(home).astype(int))
    changed = np.abs(pictures[0] - pictures[1]).max(axis=2) > 60
    assert changed.sum() > 20
    assert (pictures[0][changed][:, 2] > pictures[0][changed][:, 0]).mean() > 0.5, "the rope is blue"
