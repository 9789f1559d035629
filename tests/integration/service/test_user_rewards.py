"""OpenEnv's clients get the reward of the operator's file, which runs in the sandbox."""

import base64
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from physai.compute.sandbox.reward import UserReward
from physai.sdk.cli.main import main
from physai.service.serving.process import ServiceProcess, running_service
from physai.service.sessions.rewarded import RewardedWorlds
from physai.service.sessions.worlds import TargetWorlds, WorldsOptions

Answer = dict[str, Any]
REWARD = """
import numpy as np

def reward(steps):
    if steps["action.joint_effort_target"][0, 0] == 0.5:
        raise ValueError("half a newton")
    moved = steps["next_observation.joint_pos"] - steps["observation.joint_pos"]
    return 100.0 * moved[:, 0] + steps["terminated"] + 2.0 * steps["task_reward"]
"""
RUBRIC = """
def rubric(episode):
    steps, worlds_first = episode["action.joint_pos_target"].shape[0], episode["observation.joint_pos"][0, 0]
    return steps + 1000.0 * worlds_first + 0.5 * episode["truncated"].sum() + 0.25 * episode["truncated"][-1]
"""


def written(folder: Path, source: str) -> Path:
    path = folder / "mine.py"
    path.write_text(source)
    return path


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("service")
    (folder / "rubric").mkdir()
    rewards = {"cartpole-swingup": written(folder, REWARD), "ur10e-reach": written(folder / "rubric", RUBRIC)}
    with running_service(folder / "data", workers=0, rewards=rewards) as service:
        yield service


def ask(socket: Connection, kind: str, **data: object) -> Answer:
    socket.send(json.dumps({"type": kind, "data": data}))
    return json.loads(socket.recv(timeout=60.0))["data"]


def opened(service: ServiceProcess, path: str) -> Connection:
    return connect(f"{service.url.replace('http', 'ws')}/openenv/{path}/ws")


def test_a_step_is_rewarded_by_the_file(service: ServiceProcess) -> None:
    worlds = TargetWorlds(WorldsOptions(task="cartpole-swingup", seed=7))
    before = worlds.reset(7)["joint_pos"][0, 0]
    with opened(service, "single/cartpole-swingup") as socket:
        ask(socket, "reset", seed=7)
        there: Answer = {"done": False}
        while not there["done"]:
            here = worlds.step({"joint_effort_target": np.array([[3.0]])})
            there = ask(socket, "step", joint_effort_target=[3.0])
            after = there["observation"]["joint_pos"][0]
            expected = 100.0 * (after - before) + here["terminated"][0] + 2.0 * here["reward"][0]
            assert there["reward"] == pytest.approx(expected, abs=1e-4)
            before = after
        assert there["metadata"]["terminated"]


def test_a_file_that_fails_is_told_and_does_not_end_the_session(service: ServiceProcess) -> None:
    with opened(service, "single/cartpole-swingup") as socket:
        ask(socket, "reset", seed=1)
        failed = ask(socket, "step", joint_effort_target=[0.5])
        assert failed["code"] == "EXECUTION_ERROR"
        assert failed["message"].endswith("mine.py, line 6: ValueError: half a newton")
        assert isinstance(ask(socket, "step", joint_effort_target=[0.0])["reward"], float)


def test_many_worlds_and_tools_get_it_too(service: ServiceProcess) -> None:
    with opened(service, "batch/cartpole-swingup") as socket:
        ask(socket, "reset", seed=3, worlds=4)
        efforts = np.full((5, 4, 1), 1.0, "<f4")
        data = base64.b64encode(efforts.tobytes()).decode()
        action = {"dtype": "<f4", "shape": [5, 4, 1], "data": data}
        answer = ask(socket, "step", joint_effort_target=action)["observation"]
        reward = np.frombuffer(base64.b64decode(answer["reward"]["data"]), answer["reward"]["dtype"]).reshape(5, 4)
    worlds = TargetWorlds(WorldsOptions(task="cartpole-swingup", worlds=4))
    before = worlds.reset(3)["joint_pos"]
    for row in reward:
        here = worlds.step({"joint_effort_target": efforts[0]})
        after = here["observations"]["joint_pos"]
        assert row == pytest.approx(100.0 * (after - before)[:, 0] + 2.0 * here["reward"], abs=1e-3)
        before = after
    with opened(service, "skills/ur10e-reach") as socket:
        seen = ask(socket, "reset", seed=5)["observation"]["observations"]["joint_pos"][0]
        while True:
            answer = ask(socket, "step", type="call_tool", tool_name="act", arguments={"seconds": 5.0})
            if answer["done"]:
                break
            assert answer["reward"] == 0.0
        steps = ask(socket, "state")["step_count"]
        assert answer["reward"] == pytest.approx(steps + 1000.0 * seen + 0.75, abs=0.01)


def test_episodes_of_many_worlds_are_judged_one_by_one(tmp_path: Path) -> None:
    source = "def rubric(episode):\n    x = episode['observation.joint_pos'][:, 0]\n    return len(x) + x.sum()\n"
    options = WorldsOptions(task="cartpole-swingup", worlds=3, seed=2)
    with UserReward(written(tmp_path, source)) as reward:
        judged, plain = RewardedWorlds(TargetWorlds(options), reward), TargetWorlds(options)
        kept: list[list[float]] = [[], [], []]
        ends = 0
        seen = plain.first["joint_pos"]
        push = np.array([[4.0], [-6.0], [0.0]])
        while ends < 6:
            here, there = judged.step({"joint_effort_target": push}), plain.step({"joint_effort_target": push})
            for world in range(3):
                kept[world].append(seen[world, 0])
                expected = 0.0
                if there["terminated"][world] or there["truncated"][world]:
                    expected, ends = len(kept[world]) + sum(kept[world]), ends + 1
                    kept[world] = []
                assert here["reward"][world] == pytest.approx(expected)
            seen = there["observations"]["joint_pos"]
        assert judged.kept_steps == max(map(len, kept))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--reward", "mine.py"], "--reward mine.py: expected TASK=FILE, as ur10e-reach=mine.py"),
        (["--reward", "cartpole=mine.py"], "no task named 'cartpole'"),
        (["--reward", "cartpole-swingup=none.py"], "none.py: No such file or directory; give a Python file"),
        (["--reward", "cartpole-swingup=mine.py"], "mine.py, line 1: ZeroDivisionError"),
        (["--reward", "cartpole-swingup=mine.py", "--reward-without", "seccomp"], "seccomp"),
    ],
)
def test_a_service_does_not_start_with_what_is_no_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "1 / 0\n")
    assert main(["sim", "serve", "--data", "data", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
