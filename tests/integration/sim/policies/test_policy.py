"""Exported policies in the twin, on ONNX files written by hand: no learner is needed to run one."""

import ast
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from physai.sdk.base.errors import ContractMismatchError, TaskError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.onnx import graph as onnx_graph
from physai.sdk.policy.header import MAX_POLICY_BYTES, PolicyError, PolicyHeader
from physai.sim.policies.evaluate import Episodes, evaluation_seeds, play_episodes
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.pendulums.cartpole import cartpole_swingup
from physai.sim.tasks.task import Task, WorldView

ROOT = Path(__file__).parents[4]
STATE = {"started": 1, "count": 1}


@pytest.fixture(scope="module")
def task() -> Task:
    return cartpole_swingup()


def tensor(name: str, size: int | str, *, worlds: int | str = "n", kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, [worlds, size])


def model(task: Task, *, force: float = 0.0, nodes: list[Any] | None = None, **options: Any) -> bytes:
    """A policy that pushes with `force` for each period since its start: force · (1 + count)."""
    header = PolicyHeader(task.contract, options.get("state", STATE), {"author": "hand"})
    graph = helper.make_graph(
        nodes
        or [
            helper.make_node("Add", ["state.count", "one"], ["next.count"]),
            helper.make_node("Mul", ["next.count", "force"], ["joint_effort_target"]),
            helper.make_node("Add", ["state.started", "zero"], ["next.started"]),
        ],
        "policy",
        options.get("inputs", [tensor(name, size) for name, size in header.inputs.items()]),
        options.get("outputs", [tensor(name, size) for name, size in header.outputs.items()]),
        [
            helper.make_tensor(name, TensorProto.FLOAT, [1, 1], [value])
            for name, value in (("one", 1.0), ("zero", 0.0), ("force", force))
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    helper.set_model_props(made, options.get("metadata", header.metadata()))
    return made.SerializeToString()


def sensors(worlds: int) -> dict[str, Any]:
    return {"joint_pos": np.zeros((worlds, 2), np.float32), "joint_vel": np.zeros((worlds, 2), np.float32)}


def test_a_policy_knows_its_contract_and_origin(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    path.write_bytes(model(task))
    policy = OnnxPolicy.load(path)
    assert policy.contract == task.contract
    assert policy.fingerprint == task.contract.fingerprint
    assert policy.header.provenance == {"author": "hand"}


def test_memory_is_fed_back_and_forgotten_world_by_world(task: Task) -> None:
    policy = OnnxPolicy(model(task, force=0.5), source="test")
    policy.reset(3)
    assert policy(sensors(3), {})["joint_effort_target"].tolist() == [[0.5]] * 3
    assert policy(sensors(3), {})["joint_effort_target"].tolist() == [[1.0]] * 3
    policy.reset_worlds(np.array([False, True, False]))
    assert policy.state["count"].tolist() == [[2.0], [0.0], [2.0]]
    assert policy(sensors(3), {})["joint_effort_target"].tolist() == [[1.5], [0.5], [1.5]]
    policy.reset(1)
    assert policy(sensors(1), {})["joint_effort_target"].tolist() == [[0.5]]


def test_a_call_can_be_taken_back_world_by_world(task: Task) -> None:
    policy = OnnxPolicy(model(task, force=0.5), source="test")
    policy.reset(3)
    policy(sensors(3), {})
    policy(sensors(3), {})
    policy.undo(np.array([True, False, True]))
    assert policy.state["count"].tolist() == [[1.0], [2.0], [1.0]]
    assert policy(sensors(3), {})["joint_effort_target"].tolist() == [[1.0], [1.5], [1.0]]
    policy.reset(2)
    policy(sensors(2), {})
    policy.undo(np.array([True, False]))
    assert policy.state["started"].tolist() == [[0.0], [0.0]]
    assert policy.state["count"].tolist() == [[0.0], [1.0]], "the first call, too"


def test_what_was_sent_instead_is_remembered_world_by_world(task: Task) -> None:
    """A policy that adds 1 N to its last command; the second world's guard sends -3 N."""
    nodes = [
        helper.make_node("Add", ["state.last_joint_effort_target", "one"], ["next.last_joint_effort_target"]),
        helper.make_node("Add", ["next.last_joint_effort_target", "zero"], ["joint_effort_target"]),
    ]
    data = model(task, nodes=nodes, state={"last_joint_effort_target": 1})
    policy = OnnxPolicy(data, source="test")
    policy.reset(2)
    targets = policy(sensors(2), {})
    sent = {"joint_effort_target": np.array([[1.0], [-3.0]])}
    policy.remember(sent, sent, np.array([False, True]))
    assert targets["joint_effort_target"].tolist() == [[1.0], [1.0]], "returned commands must not change later"
    assert policy(sensors(2), {})["joint_effort_target"].tolist() == [[2.0], [-2.0]]
    policy.undo(np.array([True, True]))
    policy.remember({"joint_effort_target": np.array([[0.0], [5.0]])}, sent, np.array([False, True]))
    assert policy.state["last_joint_effort_target"].tolist() == [[1.0], [5.0]], "not asked, and something else was sent"


def test_evaluate_takes_and_gives_the_state(task: Task) -> None:
    policy = OnnxPolicy(model(task, force=2.0), source="test", num_threads=2)
    memory = {"state.started": np.ones((2, 1)), "state.count": np.array([[4.0], [7.0]])}
    outputs = policy.evaluate({**sensors(2), **memory, "unused": np.zeros(5)})
    assert {name: value.tolist() for name, value in outputs.items()} == {
        "joint_effort_target": [[10.0], [16.0]],
        "next.started": [[1.0], [1.0]],
        "next.count": [[5.0], [8.0]],
    }


def test_sensors_may_be_columns_of_a_larger_array(task: Task) -> None:
    policy = OnnxPolicy(model(task), source="test")
    policy.reset(2)
    wide = np.zeros((2, 4))
    policy({"joint_pos": wide[:, :2], "joint_vel": wide[:, 2:]}, {})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"joint_pos": np.zeros((2, 2))}, "reads 'joint_vel', which is not among joint_pos"),
        ({"joint_pos": np.zeros((2, 3))}, r"'joint_pos' has shape \(2, 3\), expected \(2, 2\)"),
        ({"joint_pos": np.zeros(2)}, r"'joint_pos' has shape \(2,\), expected \(2, 2\)"),
        ({"joint_pos": np.zeros((2, 2)), "joint_vel": np.zeros((3, 2))}, r"'joint_vel' has shape \(3, 2\)"),
        (sensors(3), r"'state.started' has shape \(2, 1\), expected \(3, 1\)"),
    ],
)
def test_fields_that_do_not_fit_are_refused(task: Task, fields: dict[str, Any], message: str) -> None:
    policy = OnnxPolicy(model(task), source="test")
    policy.reset(2)
    with pytest.raises(PolicyError, match=message):
        policy(fields, {})


def test_a_policy_must_be_reset_first(task: Task) -> None:
    policy = OnnxPolicy(model(task), source="test")
    with pytest.raises(PolicyError, match="call reset"):
        policy(sensors(1), {})
    with pytest.raises(PolicyError, match="at least one world, got 0"):
        policy.reset(0)


def test_files_that_are_no_policy_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "policy.onnx"
    with pytest.raises(PolicyError, match=r"policy\.onnx is neither a run folder nor an exported policy"):
        OnnxPolicy.load(path)
    for data in (b"", b"{}", b"\x08\x0a" * 9):
        path.write_bytes(data)
        with pytest.raises(PolicyError, match="not an ONNX model that may be a policy"):
            OnnxPolicy.load(path)
    monkeypatch.setattr(onnx_graph, "MAX_POLICY_BYTES", 8)
    with pytest.raises(PolicyError, match="18 bytes, a policy has at most 8"):
        OnnxPolicy.load(path)
    assert MAX_POLICY_BYTES == 256 << 20


@pytest.mark.parametrize("place", ["policy.onnx", "export/policy.onnx"])
def test_a_policy_is_loaded_by_its_folder(task: Task, tmp_path: Path, place: str) -> None:
    """As `validate`, `export` and `pack_bundle` find it."""
    with pytest.raises(PolicyError, match=r"contains no exported policy, neither export/policy.onnx nor policy.onnx"):
        OnnxPolicy.load(tmp_path)
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(model(task))
    policy = OnnxPolicy.load(tmp_path)
    assert policy.contract == task.contract
    assert policy.source == str(file)


def test_another_interface_is_refused(task: Task) -> None:
    header = PolicyHeader(task.contract, STATE)
    inputs = [tensor(name, size) for name, size in header.inputs.items()]
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"inputs": [inputs[1], inputs[0], *inputs[2:]]},
            r"inputs are joint_vel \[n, 2\], joint_pos .*asks for joint_pos \[n, 2\], joint_",
        ),
        (
            {"inputs": [tensor("joint_pos", 3), *inputs[1:]]},
            r"inputs are joint_pos \[n, 3\], .*asks for joint_pos \[n, 2\]",
        ),
        ({"inputs": [tensor("joint_pos", 2, worlds=1), *inputs[1:]]}, r"'joint_pos' is type 1 of shape \[1, 2\]"),
        (
            {"inputs": [tensor("joint_pos", 2, kind=TensorProto.DOUBLE), *inputs[1:]]},
            r"'joint_pos' is type 11 of shape",
        ),
        (
            {"metadata": PolicyHeader(task.contract, {"started": 1}).metadata()},
            "inputs are .*state.count \\[n, 1\\]; its contract",
        ),
        ({"metadata": {}}, "not an exported policy"),
    ]
    for options, message in cases:
        with pytest.raises(PolicyError, match=f"test: .*{message}"):
            OnnxPolicy(model(task, **options), source="test")


def test_another_contract_is_refused(task: Task) -> None:
    """One made of the file's own parts, with the fingerprint of another."""
    metadata = PolicyHeader(task.contract, STATE).metadata()
    other = task.contract.model_copy(update={"task": "another"})
    for key in ("physai.contract", "physai.fingerprint"):
        forged = metadata | {key: PolicyHeader(other, STATE).metadata()[key]}
        with pytest.raises(PolicyError, match="states the fingerprint"):
            OnnxPolicy(model(task, metadata=forged), source="test")


def test_a_policy_of_another_contract_does_not_play(task: Task) -> None:
    policy = OnnxPolicy(model(task), source="test")
    contract = task.contract.model_copy(
        update={"timing": task.contract.timing.model_copy(update={"deadline_s": 0.015})}
    )
    with pytest.raises(ContractMismatchError, match=r"timing\.deadline_s: 0\.01 in the policy, 0\.015 in the task"):
        play_episodes(policy, replace(task, contract=contract), episodes=1)


def test_a_pole_that_nobody_swings_up(task: Task) -> None:
    shares: list[float] = []
    played = play_episodes(OnnxPolicy(model(task), source="test"), task, episodes=10, progress=shares.append)
    assert played.judged == (1,) * 10
    assert played.succeeded == (0,) * 10
    assert played.success == 0.0
    assert played.success_interval() == pytest.approx((0.0, 0.3085), abs=1e-4)
    assert played.diverged == ()
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) == 500


def is_somewhere(view: WorldView) -> Any:
    return view.joint_pos[:, 0] < 1e9


def time(view: WorldView) -> Any:
    return view.episode_time


def cart(view: WorldView) -> Any:
    return view.joint_pos[:, 0]


def angle(view: WorldView) -> Any:
    return view.joint_pos[:, 1]


def test_ten_of_ten_is_no_certainty(task: Task) -> None:
    """A criterion that every episode meets, and a metric."""
    easy = replace(
        task,
        success=replace(task.success, condition=is_somewhere),
        metrics={"time": time},
    )
    played = play_episodes(OnnxPolicy(model(easy), source="test"), easy, episodes=10)
    assert played.success == 1.0
    assert played.success_interval() == pytest.approx((0.6915, 1.0), abs=1e-4)
    assert played.metrics == {"time": pytest.approx(10.0)}


def test_episodes_that_end_early_are_judged_once(task: Task) -> None:
    """A constant push drives the cart off its rail within a second or two."""
    shares: list[float] = []
    played = play_episodes(OnnxPolicy(model(task, force=5.0), source="test"), task, episodes=4, progress=shares.append)
    assert played.judged == (1,) * 4
    assert played.succeeded == (0,) * 4
    assert shares[-1] == 1.0
    assert len(shares) < 250


def test_an_episode_is_the_same_in_any_company(task: Task) -> None:
    """What an episode brings depends on its seed alone."""
    metrics = {"cart": cart, "angle": angle}
    watched = replace(task, metrics=metrics, episode_length_s=2.0)
    policy = OnnxPolicy(model(task, force=0.01), source="test")
    seeds = evaluation_seeds(3)
    alone = [play_episodes(policy, watched, episodes=1, seeds=seeds[i : i + 1]) for i in range(3)]
    together = play_episodes(policy, watched, episodes=3)
    for name in metrics:
        assert together.metrics[name] == pytest.approx(np.mean([one.metrics[name] for one in alone]), rel=1e-9)
    assert play_episodes(policy, watched, episodes=3) == together
    assert play_episodes(policy, watched, episodes=3, seeds=evaluation_seeds(3, seed=1)) != together


class Diary:
    """A policy that pushes and writes down what it is told."""

    def __init__(self, contract: PolicyContract) -> None:
        self.contract = contract
        self.worlds: list[int] = []
        self.forgotten: list[list[bool]] = []

    def reset(self, num_worlds: int) -> None:
        self.worlds.append(num_worlds)

    def reset_worlds(self, mask: Any) -> None:
        self.forgotten.append(mask.tolist())

    def __call__(self, sensors: Mapping[str, Any], commands: Mapping[str, Any]) -> dict[str, Any]:
        assert not commands
        push = np.where(np.arange(len(sensors["joint_pos"])) == 0, 10.0, 0.0)
        return {"joint_effort_target": push[:, None].astype(np.float32)}


def test_a_policy_is_told_which_episodes_have_ended(task: Task) -> None:
    """World 0 pushes its cart off the rail again and again; world 1 stays until the time is over."""
    diary = Diary(task.contract)
    played = play_episodes(diary, task, episodes=2)
    assert diary.worlds == [2]
    assert len(diary.forgotten) > 2
    assert diary.forgotten[:-1] == [[True, False]] * (len(diary.forgotten) - 1)
    assert diary.forgotten[-1][1]
    assert played.judged == (1, 1)


def test_diverged_physics_counts_as_failure(task: Task) -> None:
    """A torque beyond any number; only the first of a world's episodes is reported."""
    huge = OnnxPolicy(model(task, force=3e38), source="test")
    unbounded = replace(task, model=_without_limits(task))
    played = play_episodes(huge, unbounded, episodes=2, randomise=False)
    assert played.succeeded == (0, 0)
    assert {episode.episode_seed for episode in played.diverged} <= set(evaluation_seeds(2).tolist())
    assert len(played.diverged) == 2


def _without_limits(task: Task) -> Any:
    spec = task.robot.model_spec.copy()
    spec.option.timestep = task.contract.timing.physics_dt
    for actuator in spec.actuators:
        actuator.ctrllimited, actuator.forcelimited = False, False
    for joint in spec.joints:
        joint.actfrclimited = False
    return spec.compile()


def test_bad_requests_are_refused(task: Task) -> None:
    policy = OnnxPolicy(model(task), source="test")
    with pytest.raises(TaskError, match="at least one episode must be played, got 0"):
        play_episodes(policy, task, episodes=0)
    with pytest.raises(TaskError, match=r"2 episodes need one seed each, got seeds of shape \(3,\)"):
        play_episodes(policy, task, episodes=2, seeds=evaluation_seeds(3))


def test_nothing_judged_says_nothing() -> None:
    assert Episodes((0,), (0,), {}, ()).success_interval() == (0.0, 1.0)


WITHOUT_TORCH = """
import sys

BLOCKED = ("torch", "onnx", "onnxscript", "physai.train")

class Blocker:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if any(name == blocked or name.startswith(blocked + ".") for blocked in BLOCKED):
            raise ImportError(f"the twin must not import {name}")
        return None

sys.meta_path.insert(0, Blocker)

from physai.sim.policies.evaluate import play_episodes
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.registry import load_task

played = play_episodes(OnnxPolicy.load(sys.argv[1]), load_task("cartpole-swingup"), episodes=2)
assert not [name for name in BLOCKED if name in sys.modules]
print(sum(played.judged))
"""


def test_a_policy_plays_where_there_is_no_torch(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    path.write_bytes(model(task))
    command = [sys.executable, "-c", WITHOUT_TORCH, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.stdout == "2\n", result.stderr


def test_only_what_runs_on_a_device_imports_torch() -> None:
    sim = ROOT / "sim" / "physai" / "sim"
    of_devices = {
        *(sim / "envs" / "device").glob("*.py"),
        *(sim / "engines" / name for name in ("warp.py", "warp_device.py")),
        *(sim / "policies" / name for name in ("device_evaluate.py", "device_policy.py", "devices.py")),
    }
    files = sorted(set(sim.rglob("*.py")) - of_devices)
    assert len(files) > 20
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in modules if name.split(".")[0] == "torch" or name.startswith("physai.train")], (
                file
            )


def test_the_hand_written_model_is_valid(task: Task) -> None:
    made = onnx.load_from_string(model(task))
    checker: Any = onnx.checker
    checker.check_model(made, full_check=True)
