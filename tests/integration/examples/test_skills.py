"""Skills of a served world: what a language model can do in it, and what it is told where it cannot."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from agents.reaching import TOLERANCE, Reach
from agents.skills import SkillError, TwinSkills
from agents.trl import PoseTwinTools, TwinTools, environment_factory
from tests.support.page_code import page_code

from physai.service import ServiceError
from physai.service.serving.process import ServiceProcess, running_service
from physai.sim.tasks.registry import load_task
from physai.train.models.kinematics import ForwardKinematics

REACH, SWINGUP = "ur10e-reach", "cartpole-swingup"
POSE = "ee_pose_target [m, 1]"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service") / "data", workers=0) as running:
        yield running


@pytest.fixture
def reach(service: ServiceProcess) -> Generator[TwinSkills]:
    skills = TwinSkills(service.url, REACH)
    yield skills
    skills.close()


def state(skills: TwinSkills) -> dict[str, Any]:
    return json.loads(skills.read_state())


def sessions(service: ServiceProcess) -> list[dict[str, Any]]:
    return httpx.get(f"{service.url}/v1/sessions").json()


@pytest.mark.parametrize("seed", range(3))
def test_moving_to_the_targets_solves_the_task(reach: TwinSkills, seed: int) -> None:
    reach.reset(seed)
    judged = 0
    while not reach.over:
        reach.call("move_to", {"pose": state(reach)[POSE], "seconds": 4.0})
        judged += 1
        assert (reach.judged, reach.score) == (judged, judged / 3)
    # Three targets of 4 s each.
    assert (reach.judged, reach.succeeded, reach.score) == (3, 3, 1.0)
    assert state(reach)["time_s"] == 12.0
    assert state(reach)["episode_over"]


def test_standing_still_does_not(reach: TwinSkills) -> None:
    reach.reset(1)
    for _ in range(2):
        reach.call("act", {"targets": state(reach)["joint_pos [rad]"], "seconds": 4.0})
    assert (reach.judged, reach.succeeded, reach.score) == (2, 0, 0.0)


def test_equal_seeds_start_equal_episodes(service: ServiceProcess, reach: TwinSkills) -> None:
    first = reach.reset(5)
    assert reach.reset(6) != first
    reach.call("act", {"targets": state(reach)["joint_pos [rad]"], "seconds": 10.0})
    reach.call("act", {"targets": state(reach)["joint_pos [rad]"], "seconds": 10.0})
    assert reach.over
    assert reach.reset(5) == first
    other = TwinSkills(service.url, REACH)
    assert other.reset(5) == first
    assert other.reset() == first
    other.close()


def test_an_episode_that_ends_within_an_action_counts_to_its_end_only(service: ServiceProcess) -> None:
    skills = TwinSkills(service.url, SWINGUP)
    skills.reset(0)
    skills.call("act", {"targets": [0.0], "seconds": 6.0})
    assert not skills.over
    skills.call("act", {"targets": [0.0], "seconds": 6.0})
    # A hanging pole stays within the rail for the 10 s of an episode.
    assert (state(skills)["time_s"], skills.over, skills.judged, skills.succeeded) == (10.0, True, 1, 0)
    # What the model reads last is the end of its episode, not the next one, however long its action was.
    last = skills.read_state()
    skills.reset(0)
    skills.call("act", {"targets": [0.0], "seconds": 6.0})
    skills.call("act", {"targets": [0.0], "seconds": 4.0})
    assert skills.read_state() == last
    with pytest.raises(SkillError, match="episode is over"):
        skills.call("act", {"targets": [0.0], "seconds": 1.0})
    skills.close()


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("fly", {}, "no skill 'fly'"),
        ("close", {}, "no skill 'close'"),
        ("__init__", {"url": "http://elsewhere"}, "no skill"),
        ("read_state", {"more": 1}, "exactly the arguments"),
        ("act", {"targets": [0.0] * 6}, "exactly the arguments"),
        ("act", [1], "exactly the arguments"),
        ("act", {"targets": [0.0] * 5, "seconds": 1.0}, "list of 6 numbers"),
        ("act", {"targets": "0", "seconds": 1.0}, "list of 6 numbers"),
        (
            "act",
            {"targets": [0.0, 0.0, 4.0, 0.0, 0.0, 0.0], "seconds": 1.0},
            r"targets\[2\] is 4.0, .* -3.142 to 3.142",
        ),
        ("act", {"targets": [float("nan")] * 6, "seconds": 1.0}, r"targets\[0\] is nan"),
        ("act", {"targets": [10**400] * 6, "seconds": 1.0}, r"targets\[0\] is 1000"),
        ("act", {"targets": [True] * 6, "seconds": 1.0}, r"targets\[0\] is True"),
        ("act", {"targets": [0.0] * 6, "seconds": 10.1}, r"seconds\[0\] is 10.1, allowed are 0 to 10"),
        ("act", {"targets": [0.0] * 6, "seconds": -1}, r"seconds\[0\] is -1"),
        ("move_to", {"pose": [0.9, -0.2, 0.2, 0.0, 0.0, 0.0, 0.5], "seconds": 4.0}, "length is 0.500"),
        ("move_to", {"pose": [5.0, 0.0, 0.2, 0.0, 1.0, 0.0, 0.0], "seconds": 4.0}, "no joint positions"),
        ("move_to", {"pose": [0.9, -0.2, 0.2, 0.0, 1.0, 0.0, 0.0], "seconds": 0.1}, "takes at least"),
    ],
)
def test_a_wrong_call_says_so_and_moves_nothing(reach: TwinSkills, name: str, arguments: object, message: str) -> None:
    reach.reset(0)
    before = reach.read_state()
    with pytest.raises(SkillError, match=message):
        reach.call(name, arguments)
    assert reach.read_state() == before
    assert reach.failure is None


def test_a_session_that_the_service_closed_is_opened_again(service: ServiceProcess, reach: TwinSkills) -> None:
    first = reach.reset(2)
    (found,) = sessions(service)
    assert reach.session is not None
    token = reach.session.description["token"]
    httpx.delete(f"{service.url}/v1/sessions/{found['id']}", headers={"x-session-token": token}).raise_for_status()
    with pytest.raises(ServiceError):
        reach.call("act", {"targets": [0.0] * 6, "seconds": 1.0})
    assert reach.failure is not None
    assert reach.reset(2) == first
    assert reach.failure is None
    assert len(sessions(service)) == 1


def test_a_dropped_agent_leaves_no_session(service: ServiceProcess) -> None:
    skills = TwinSkills(service.url, SWINGUP)
    skills.reset()
    assert len(sessions(service)) == 1
    del skills
    assert sessions(service) == []


def test_the_page_shows_what_works(service: ServiceProcess, capsys: pytest.CaptureFixture[str]) -> None:
    exec(page_code("how-to/other-frameworks.md", "skills.py", service.url), {})
    *_, last, score = capsys.readouterr().out.splitlines()
    assert json.loads(last)["goals_met"] == 1
    assert float(score) == 1 / 3


def test_skills_fit_the_task(service: ServiceProcess) -> None:
    assert list(TwinSkills(service.url, REACH).schemas()) == ["read_state", "act", "move_to", "reset"]
    assert list(TwinSkills(service.url, SWINGUP).schemas()) == ["read_state", "act", "reset"]
    assert type(environment_factory(service.url, REACH)()) is PoseTwinTools
    assert type(environment_factory(service.url, SWINGUP)()) is TwinTools


@pytest.mark.slow
def test_an_episode_without_its_service_has_no_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The client would try for 50 s to reach the service again.
    monkeypatch.setattr("physai.service.client.remote_session.RESUME_S", 0.5)
    with running_service(tmp_path / "data", workers=0) as passing:
        tools = environment_factory(passing.url, SWINGUP)()
        tools.reset(seed=3, prompt="swing up")
        assert tools.get_reward() == 0.0
        passing.kill()
        with pytest.raises(ServiceError):
            tools.act([0.0], 1.0)
        with pytest.raises(ServiceError):
            tools.get_reward()


@pytest.mark.slow
def test_inverse_kinematics_is_the_inverse_of_the_forward_one() -> None:
    contract = load_task(REACH).contract
    reach, home = Reach.of(contract), np.array([joint.default_pos for joint in contract.robot.joints])
    assert reach is not None
    kinematics = ForwardKinematics(contract.robot.chains[0], contract.robot.joint_names)
    generator = np.random.default_rng(0)
    for _ in range(20):
        joints = home + generator.uniform(-0.6, 0.6, 6)
        position, quat = kinematics(torch.as_tensor(joints, dtype=torch.float32)[None])
        pose = torch.cat([position, quat], dim=1)[0].numpy().astype(np.float64)
        found = reach.solve(pose, home)
        assert found is not None
        again = torch.cat(kinematics(torch.as_tensor(found, dtype=torch.float32)[None]), dim=1)[0].numpy()
        # q and -q are the same rotation.
        again[3:] *= np.sign(again[3:] @ pose[3:])
        assert np.abs(again - pose).max() < 2 * TOLERANCE
