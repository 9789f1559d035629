"""Playing: agents, moments, outcomes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from physai.sdk.base.errors import ContractMismatchError, TaskError, UnknownNameError
from physai.sim.envs.environment import Environment
from physai.sim.playback.moment import EpisodeOutcome, Moment
from physai.sim.playback.player import Player, episode_seed
from physai.sim.policies.evaluate import evaluation_seeds, play_episodes
from physai.sim.policies.scripted import AGENTS, ScriptedPolicy
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task, Uniforms


@pytest.fixture(scope="module")
def cartpole() -> Task:
    return load_task("cartpole-swingup")


@pytest.fixture(scope="module")
def reach() -> Task:
    return load_task("ur10e-reach")


class Push(ScriptedPolicy):
    """Commands one force for ever."""

    def __init__(self, task: Task, force: float) -> None:
        super().__init__(task.contract, "zero")
        self._force = force

    def __call__(self, sensors: Mapping[str, Any], commands: Mapping[str, Any]) -> dict[str, Any]:
        return {"joint_effort_target": np.full((1, 1), self._force, np.float32)}


def play(task: Task, agent: str = "zero", **options: Any) -> tuple[list[Moment], list[EpisodeOutcome]]:
    settings: dict[str, Any] = {"episodes": 1, **options}
    player = Player(ScriptedPolicy(task.contract, agent), task, **settings)
    return list(player), player.outcomes


def short(task: Task, length_s: float) -> Task:
    return replace(task, episode_length_s=length_s)


def test_zero_holds_the_start_where_commands_are_increments(reach: Task) -> None:
    agent = ScriptedPolicy(reach.contract, "zero")
    agent.reset(2)
    start = np.array([[0.1, -1.5, 1.5, -1.5, -1.5, 0.0], [0.2, -1.4, 1.4, -1.4, -1.4, 0.3]], np.float32)
    assert agent({"joint_pos": start}, {})["joint_pos_target"].tolist() == start.tolist()
    moved = agent({"joint_pos": start + 0.5}, {})["joint_pos_target"]
    assert moved.tolist() == start.tolist()
    agent.reset_worlds(np.array([False, True]))
    again = agent({"joint_pos": start + 0.5}, {})["joint_pos_target"]
    assert again.tolist() == [start[0].tolist(), (start[1] + 0.5).tolist()]


def test_zero_commands_the_offset_where_commands_are_absolute() -> None:
    task = load_task("go2-velocity")
    agent = ScriptedPolicy(task.contract, "zero")
    agent.reset(1)
    target = agent({"joint_pos": np.zeros((1, 12), np.float32)}, {})["joint_pos_target"]
    assert target[0].tolist() == pytest.approx([0.1, 0.8, -1.5, -0.1, 0.8, -1.5, 0.1, 1.0, -1.5, -0.1, 1.0, -1.5])


def test_hold_keeps_positions_and_lets_efforts_go(cartpole: Task) -> None:
    go2 = load_task("go2-velocity")
    start = np.linspace(-0.5, 0.5, 12, dtype=np.float32)[None]
    agent = ScriptedPolicy(go2.contract, "hold")
    agent.reset(1)
    assert agent({"joint_pos": start}, {})["joint_pos_target"].tolist() == start.tolist()
    assert agent({"joint_pos": start + 1.0}, {})["joint_pos_target"].tolist() == start.tolist()
    limp = ScriptedPolicy(cartpole.contract, "hold")
    limp.reset(1)
    assert limp({"joint_pos": np.ones((1, 2), np.float32)}, {})["joint_effort_target"].tolist() == [[0.0]]


def test_random_stays_within_step_and_bounds_and_repeats_with_its_seed(reach: Task) -> None:
    term = reach.contract.action.terms[0]
    start = {"joint_pos": np.array(term.upper, np.float32)[None]}
    runs: list[np.ndarray[Any, Any]] = []
    for seed in (7, 7, 8):
        agent = ScriptedPolicy(reach.contract, "random", seed=seed)
        agent.reset(1)
        runs.append(np.concatenate([agent(start, {})["joint_pos_target"] for _ in range(50)]))
    assert (runs[0] == runs[1]).all()
    assert (runs[0] != runs[2]).any()
    assert (runs[0] <= np.array(term.upper, np.float32)).all()
    steps = np.abs(np.diff(runs[0], axis=0))
    assert 0.9 * max(term.scale) < steps.max() <= max(term.scale) + 1e-6


def test_unknown_agents_get_a_hint(cartpole: Task) -> None:
    with pytest.raises(UnknownNameError, match="no agent named 'randm'; did you mean random"):
        ScriptedPolicy(cartpole.contract, "randm")


def test_an_episode_has_a_moment_per_period_and_one_at_its_end(cartpole: Task) -> None:
    moments, outcomes = play(short(cartpole, 0.2), episodes=2)
    assert [moment.time_s for moment in moments] == pytest.approx([0.02 * k for k in range(11)] * 2)
    assert [moment.episode for moment in moments] == [0] * 11 + [1] * 11
    assert moments[11].start_s == pytest.approx(0.2)
    assert moments[0].reward is None
    assert all(moment.reward is not None for moment in moments[1:11])
    assert all(moment.targets and moment.sensors and moment.outcome is None for moment in moments[:10])
    assert (moments[10].targets, moments[10].sensors, moments[10].outcome) == ({}, {}, outcomes[0])
    assert outcomes[0].length_s == pytest.approx(0.2)
    assert outcomes[0].total_reward == pytest.approx(sum(m.reward or 0.0 for m in moments[:11]))
    assert (outcomes[0].ended, outcomes[0].judged, outcomes[0].success) == ("time", 1, False)


def test_the_last_moment_shows_the_end_not_the_next_start(cartpole: Task) -> None:
    """An environment whose episode goes on comes to the same state."""
    moments, _ = play(short(cartpole, 0.2), "random")
    longer = Environment(cartpole, 1)
    longer.reset(episode_seed(0, 0))
    for moment in moments[:10]:
        assert (longer.view.qpos[0] == moment.qpos).all()
        longer.step({name: target[None] for name, target in moment.targets.items()})
    assert (longer.view.qpos[0] == moments[10].qpos).all()
    assert (longer.view.qvel[0] == moments[10].qvel).all()


def test_a_failure_ends_the_episode_where_it_happened(cartpole: Task) -> None:
    player = Player(Push(cartpole, 10.0), cartpole, episodes=1, randomise=False)
    moments = list(player)
    (outcome,) = player.outcomes
    assert outcome.ended == "failure"
    assert outcome.length_s < 10.0
    assert outcome.success is False
    assert abs(moments[-1].qpos[0]) > 0.98 * 2.4 > abs(moments[-2].qpos[0])


def test_physics_that_goes_astray_is_told_from_failure(cartpole: Task) -> None:
    def reset(draw: Uniforms) -> tuple[Any, Any]:
        return np.zeros((len(draw), 2)), np.full((len(draw), 2), 1e14)

    _, outcomes = play(replace(cartpole, reset=reset))
    assert [outcome.ended for outcome in outcomes] == ["diverged"]


def test_every_command_is_judged_and_metrics_are_averaged(reach: Task) -> None:
    moments, (outcome,) = play(reach)
    verdicts = [(moment.time_s, moment.verdict) for moment in moments if moment.verdict]
    assert [time for time, _ in verdicts] == pytest.approx([4.0, 8.0, 12.0])
    errors = [verdict.metrics["position_error_m"] for _, verdict in verdicts]
    assert outcome.metrics["position_error_m"] == pytest.approx(sum(errors) / 3)
    assert (outcome.judged, outcome.succeeded) == (3, 0)
    told = [moment.commands["ee_pose_target"].tolist() for moment in moments]
    assert len({tuple(pose) for pose in told}) == 3
    assert told[-1] == told[-2], "the last picture shows the target that was judged, not the next episode's"


def test_seed_zero_plays_the_episodes_that_eval_judges() -> None:
    task = short(load_task("go2-velocity"), 4.0)
    assert [int(episode_seed(0, k)[0]) for k in range(3)] == evaluation_seeds(3).tolist()
    _, outcomes = play(task, episodes=3)
    judged = play_episodes(ScriptedPolicy(task.contract, "zero"), task, episodes=3)
    assert tuple(outcome.succeeded for outcome in outcomes) == judged.succeeded
    assert tuple(outcome.judged for outcome in outcomes) == judged.judged
    mean = np.mean([outcome.metrics["velocity_error_m_s"] for outcome in outcomes])
    assert mean == pytest.approx(judged.metrics["velocity_error_m_s"], rel=1e-6)


def test_other_seeds_are_other_episodes_and_nominal_ones_have_no_noise(cartpole: Task) -> None:
    brief = short(cartpole, 0.1)
    first, second = play(brief, seed=0)[0], play(brief, seed=1)[0]
    assert (first[0].qpos != second[0].qpos).any()
    exact = play(brief, randomise=False)[0]
    assert exact[0].sensors["joint_pos"].tolist() == exact[0].qpos.astype(np.float32).tolist()
    assert (first[0].sensors["joint_pos"] != first[0].qpos.astype(np.float32)).any()


def test_playing_stops_after_its_duration_or_when_asked(cartpole: Task) -> None:
    moments, outcomes = play(short(cartpole, 0.2), episodes=None, duration_s=0.3)
    assert [outcome.ended for outcome in outcomes] == ["time", "stopped"]
    assert moments[-1].start_s + moments[-1].time_s == pytest.approx(0.3)
    assert (outcomes[1].judged, outcomes[1].success) == (0, None)
    player = Player(ScriptedPolicy(cartpole.contract, "zero"), cartpole)
    count = 0
    for moment in player:
        count += 1
        if moment.time_s > 0.095:
            player.stop()
    assert count == 7
    assert player.outcomes[0].ended == "stopped"


def test_bad_requests_name_both_values(cartpole: Task, reach: Task) -> None:
    with pytest.raises(TaskError, match="at least one episode must be played, got 0"):
        play(cartpole, episodes=0)
    with pytest.raises(TaskError, match="longer than 0 s, got nan"):
        play(cartpole, duration_s=float("nan"))
    with pytest.raises(ContractMismatchError):
        Player(ScriptedPolicy(reach.contract, "zero"), cartpole)


def test_outcomes_are_json_with_exact_seeds() -> None:
    outcome = EpisodeOutcome(1, 2**64 - 1, "time", 2.0, float("nan"), 2, 2, {"error_m": float("inf"), "angle_rad": 0.5})
    assert outcome.as_json() == {
        "episode": 1,
        "seed": "18446744073709551615",
        "ended": "time",
        "length_s": 2.0,
        "return": None,
        "judged": 2,
        "succeeded": 2,
        "success": True,
        "metrics": {"error_m": None, "angle_rad": 0.5},
    }


def test_all_agents_play_all_tasks() -> None:
    for name in ("pendubot-swingup", "go2-velocity", "ur10e-reach"):
        for agent in AGENTS:
            moments, _ = play(load_task(name), agent, duration_s=0.1)
            assert np.isfinite(moments[-1].qpos).all()
