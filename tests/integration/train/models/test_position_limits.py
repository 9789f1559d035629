"""Limits of commanded positions in the policy graph: numbers by hand, laws, and one memory for twin and robot."""

import json
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from physai.sdk.base.errors import ContractError
from physai.sdk.contract.interface import graph_interface
from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.position_limits import UNLIMITED, position_limits
from physai.sdk.contract.robot import JointSpec, RobotSpec, SensorField
from physai.sdk.contract.safety_envelope import JointEnvelope, SafetyEnvelope
from physai.sdk.contract.terms import ActionSpec, ActionTerm, CommandSpec, ObservationSpec, ObservationTerm, TimingSpec
from physai.sdk.onnx.tensorrt_build import build_engine
from physai.sdk.policy.header import PolicyHeader
from physai.sdk.policy.memory import CommandMemory
from physai.sdk.safety import Guard, GuardState
from physai.sim.policies.onnx import OnnxPolicy
from physai.train.models.numpy_policy import GraphPolicy
from physai.train.models.policy_graph import ActorMLP, PolicyGraph, State
from physai.train.onnx_export.onnx_graph import build_onnx

PERIOD_S = 0.5
"""Control period: a speed limit of 2v allows steps of v, an acceleration limit of 4a changes of a."""


SLACK = 3e-6
"""Some roundings of float32 sums of numbers up to 2."""


def contract(**changes: Any) -> PolicyContract:
    """Two joints within ±1 and within ±0.5 of it; steps of 0.25 and 0.5, changes of 0.0625 and none; format 2."""
    given: dict[str, Any] = {
        "kind": "joint_pos",
        "scale": (1.0, 1.0),
        "speed": (0.5, 1.0),
        "acceleration": (0.25, None),
        "format_version": 2,
        "observation": ({"kind": "sensor", "source": "joint_vel"},),
    } | changes
    robot = RobotSpec(
        name="arm",
        base="fixed",
        joints=tuple(
            JointSpec(name=name, kind="revolute", position_lower=-2.0, position_upper=2.0, effort_limit=10.0)
            for name in ("a", "b")
        ),
        sensors=(
            SensorField(name="joint_pos", size=2, unit="rad"),
            SensorField(name="joint_vel", size=2, unit="rad/s"),
        ),
    )
    action = ActionTerm(
        kind=given["kind"],
        joints=("b", "a"),
        scale=given["scale"],
        offset=(0.0, 0.0),
        lower=(-1.0, -1.0),
        upper=(1.0, 1.0),
    )
    envelopes = tuple(
        JointEnvelope(
            joint=name,
            position_lower=-2.0,
            position_upper=upper,
            velocity_limit=speed,
            effort_limit=10.0,
            **({} if acceleration is None else {"acceleration_limit": acceleration}),
        )
        # In the robot's order, a first; the action's joints come in the other one.
        for name, upper, speed, acceleration in zip(
            ("a", "b"), (0.5, 2.0), reversed(given["speed"]), reversed(given["acceleration"]), strict=True
        )
    )
    return PolicyContract(
        format_version=given["format_version"],
        task="test",
        robot=robot,
        observation=ObservationSpec(
            terms=tuple(ObservationTerm(name=f"term{i}", **term) for i, term in enumerate(given["observation"]))
        ),
        action=ActionSpec(terms=(action,)),
        command=CommandSpec(),
        timing=TimingSpec(control_dt=PERIOD_S, physics_dt=0.1, decimation=5, deadline_s=0.4, max_observation_age_s=1.0),
        safety=SafetyEnvelope(joints=envelopes),
    )


def graph(**changes: Any) -> PolicyGraph:
    made = contract(**changes)
    return PolicyGraph(made, ActorMLP(made.observation_size, made.action.size, (8,), "tanh"))


def sensors(positions: list[float], worlds: int = 1) -> dict[str, Tensor]:
    """Measured positions of b and a, the action's order."""
    return {"joint_pos": torch.tensor([positions[::-1]] * worlds), "joint_vel": torch.zeros(worlds, 2)}


def commanded(made: PolicyGraph, actions: list[list[float]], start: list[float]) -> tuple[list[list[float]], State]:
    """Positions commanded to b and a for network outputs, and the memory after them."""
    state = made.initial_state(1)
    targets: list[list[float]] = []
    for action in actions:
        target, memory = made.command(torch.tensor([action]), sensors(start), state)
        state = {**state, **memory}
        targets.append(target["joint_pos_target"][0].numpy().tolist())
    return targets, state


def test_limits_of_a_contract() -> None:
    """b: 0.5 rad/s · 0.5 s, 0.25 rad/s² · 0.25 s²; a: 1 rad/s · 0.5 s; the envelope ends a's range at 0.5."""
    limits = position_limits(contract())
    assert limits is not None
    assert limits.lower.tolist() == [-1.0, -1.0]
    assert limits.upper.tolist() == [1.0, 0.5]
    # b brakes in up to min(0.25 / 0.0625, √(2·2 / 0.0625)) = 4 periods: 8 + 4²/2 units in the last place of 1, 2⁻²³.
    assert limits.stop_lower.tolist() == [-1.0 + 16.0 / 2.0**23, -1.0]
    assert limits.stop_upper.tolist() == [1.0 - 16.0 / 2.0**23, 0.5]
    assert limits.step.tolist() == [0.25, 0.5]
    assert limits.change.tolist() == [0.0625, np.float32(UNLIMITED)]
    assert limits.accelerates


def test_limits_are_rounded_so_that_no_guard_cuts_them() -> None:
    limits = position_limits(contract(speed=(0.2, 0.6), acceleration=(0.4, 1.3)))
    assert limits is not None
    assert 0.0 <= 0.1 - float(limits.step[0]) < 1e-8
    assert 0.0 <= 0.3 - float(limits.step[1]) < 3e-8
    assert 0.0 <= 0.1 - float(limits.change[0]) < 1e-8


@pytest.mark.parametrize(
    "changes",
    [{"format_version": 1, "acceleration": (None, None)}, {"speed": (None, None), "acceleration": (None, None)}],
)
def test_graphs_without_limits_are_what_they_were(changes: dict[str, Any]) -> None:
    """Format 1 knows none, and a contract may set none."""
    assert position_limits(contract(**changes)) is None
    made = graph(**changes)
    assert made.state_sizes == {"started": 1}
    assert commanded(made, [[1.0, -1.0], [-1.0, 1.0]], [0.0, 0.0])[0] == [[1.0, -1.0], [-1.0, 1.0]]


def test_speed_and_acceleration_of_absolute_commands() -> None:
    """b from 0 to 1: steps grow by 0.0625 until there is just room to stop: 0.0625, 0.125, 0.1875, 0.25 make 0.625, and
    0.375 = 0.1875 + 0.125 + 0.0625 are left. a reaches its bound of 0.5 in one step of 0.5."""
    targets, state = commanded(graph(), [[1.0, 1.0]] * 9, [0.0, 0.0])
    assert [b for b, _ in targets] == pytest.approx(
        [0.0625, 0.1875, 0.375, 0.625, 0.8125, 0.9375, 1.0, 1.0, 1.0], abs=SLACK
    )
    assert [a for _, a in targets] == [0.5] * 9
    assert state["step_joint_pos_target"].numpy() == pytest.approx(np.zeros((1, 2)), abs=SLACK)


def test_a_joint_that_turns_brakes_first() -> None:
    """Steps 0.0625, 0.125 forth; then they fall by 0.0625."""
    targets, _ = commanded(graph(), [[1.0, 0.0]] * 2 + [[-1.0, 0.0]] * 4, [0.0, 0.0])
    assert [b for b, _ in targets] == [0.0625, 0.1875, 0.25, 0.25, 0.1875, 0.0625]


def test_incremental_commands() -> None:
    """Scale 0.25: as much as the speed allows; without an acceleration limit a's steps are its network's outputs."""
    made = graph(kind="joint_pos_incremental", scale=(0.25, 0.25))
    targets, _ = commanded(made, [[1.0, 1.0], [1.0, -1.0], [0.0, 0.5]], [0.0, 0.0])
    assert targets == [[0.0625, 0.25], [0.1875, 0.0], [0.25, 0.125]]


def test_without_acceleration_limits_no_step_is_remembered() -> None:
    made = graph(acceleration=(None, None))
    assert made.state_sizes == {"started": 1, "last_joint_pos_target": 2}
    targets, _ = commanded(made, [[1.0, 1.0]] * 3 + [[-1.0, -1.0]], [0.0, 0.0])
    assert targets == [[0.25, 0.5], [0.5, 0.5], [0.75, 0.5], [0.5, 0.0]]


def test_the_first_command_starts_where_the_joint_is_or_at_its_bound() -> None:
    """b at -0.5; a is measured at 0.75, beyond its bound of 0.5. Both wanted at 0."""
    targets, state = commanded(graph(), [[0.0, 0.0]], [-0.5, 0.75])
    assert targets == [[-0.4375, 0.0]]
    assert state["step_joint_pos_target"].numpy().tolist() == [[0.0625, -0.5]]


def test_the_state_is_named_and_starts_at_zero() -> None:
    made = graph(observation=({"kind": "last_target"}, {"kind": "previous_action"}))
    assert made.state_sizes == {
        "started": 1,
        "last_joint_pos_target": 2,
        "step_joint_pos_target": 2,
        "previous_action": 2,
    }


def test_memory_that_was_never_started_is_not_read() -> None:
    made = graph()
    state = made.initial_state(1)
    state["last_joint_pos_target"][:] = 0.9
    state["step_joint_pos_target"][:] = -0.25
    target, _ = made.command(torch.zeros(1, 2), sensors([0.0, 0.0]), state)
    assert target["joint_pos_target"].numpy().tolist() == [[0.0, 0.0]]


@pytest.mark.slow
@torch.no_grad()
def test_the_exported_graph_computes_the_same() -> None:
    """At full and turning commands, all of the rule's cases; all that differs is the rounding of a steep network."""
    torch.random.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    made = graph(kind="joint_pos_incremental", observation=({"kind": "last_target"},), scale=(0.25, 0.5))
    generator = torch.Generator().manual_seed(0)
    torch.nn.init.normal_(made.actor.get_submodule("layers.2").get_parameter("weight"), 0.0, 4.0, generator)
    header = PolicyHeader(made.contract, made.state_sizes)
    exported = OnnxPolicy(build_onnx(made, header).SerializeToString(), source="test")
    trained = GraphPolicy(made)
    exported.reset(64)
    trained.reset(64)
    numbers = np.random.default_rng(0)
    seen: list[float] = []
    for _ in range(50):
        fields = {"joint_pos": numbers.normal(0.0, 0.5, (64, 2)).astype(np.float32)}
        fields["joint_vel"] = np.zeros((64, 2), np.float32)
        wanted, found = trained(fields, {}), exported(fields, {})
        assert np.abs(found["joint_pos_target"] - wanted["joint_pos_target"]).max() <= 10.0 * SLACK
        seen += np.abs(exported.state["step_joint_pos_target"][:, 0]).tolist()
        trained.state = {name: torch.as_tensor(value) for name, value in exported.state.items()}
    assert min(seen) < 0.01
    assert max(seen) == pytest.approx(0.25)


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("tensorrt_rtx") is None, reason="tensorrt-rtx is not installed, so no engine can be built"
)
def test_tensorrt_takes_the_exported_graph() -> None:
    made = graph()
    data = build_onnx(made, PolicyHeader(made.contract, made.state_sizes)).SerializeToString()
    assert build_engine(data, source="test", targets=(86, 89, 120)).warnings == ()


def test_no_memory_leads_out_of_the_bounds() -> None:
    """Whatever it says: a policy's file comes from elsewhere."""
    made = graph()
    state = made.initial_state(1)
    state["started"][:] = 1.0
    state["last_joint_pos_target"][:] = torch.tensor([[-30.0, 40.0]])
    state["step_joint_pos_target"][:] = torch.tensor([[-3.0, 4.0]])
    target, _ = made.command(torch.zeros(1, 2), sensors([0.0, 0.0]), state)
    assert target["joint_pos_target"].numpy().tolist() == [[-1.0, 0.5]]


kinds = st.sampled_from(["joint_pos", "joint_pos_incremental"])
limits_of_joints = st.tuples(st.floats(0.01, 20.0), st.floats(0.01, 20.0))


def accelerations() -> st.SearchStrategy[tuple[float | None, float | None]]:
    one = st.one_of(st.none(), st.floats(0.01, 50.0), st.floats(0.01, 0.5))
    return st.tuples(one, one).filter(lambda pair: pair != (None, None))


def outputs() -> st.SearchStrategy[list[tuple[float, float]]]:
    """Network outputs that are kept for some periods, so that joints get fast and reach their bounds."""
    one = st.floats(-2.0, 2.0)
    kept = st.tuples(st.tuples(one, one), st.integers(1, 25))
    return st.lists(kept, min_size=1, max_size=5).map(lambda runs: [pair for pair, count in runs for _ in range(count)])


starts = st.tuples(st.floats(-1.9, 1.9), st.floats(-1.9, 0.4))
"""Measured positions of b and a, inside the safety envelope."""


@settings(max_examples=60, deadline=None)
@given(kind=kinds, speed=limits_of_joints, acceleration=accelerations(), actions=outputs(), start=starts)
def test_no_command_leaves_its_limits_and_every_joint_can_still_stop(
    kind: str,
    speed: tuple[float, float],
    acceleration: tuple[float | None, float | None],
    actions: list[tuple[float, float]],
    start: tuple[float, float],
) -> None:
    made = graph(kind=kind, speed=speed, acceleration=acceleration)
    limits = position_limits(made.contract)
    assert limits is not None
    lower, upper, fastest, change = (
        np.asarray(values, np.float64) for values in (limits.lower, limits.upper, limits.step, limits.change)
    )
    targets, _ = commanded(made, [list(action) for action in actions], list(start))
    last = np.clip(np.asarray(start, np.float32).astype(np.float64), lower, upper)
    before = np.zeros(2)
    for target in np.array(targets):
        step = target - last
        assert (lower <= target).all()
        assert (target <= upper).all()
        assert (np.abs(step) <= fastest + SLACK).all()
        assert (np.abs(step - before) <= change + SLACK).all()
        braked = target + braking_distance(step, change)
        assert (lower - SLACK * (1.0 + np.abs(step) / change) <= braked).all()
        assert (braked <= upper + SLACK * (1.0 + np.abs(step) / change)).all()
        last, before = target, step


def braking_distance(step: Any, change: Any) -> Any:
    """Travelled after a step when each following one is smaller by `change`, one by one."""
    left, travelled = np.abs(step), np.zeros_like(step)
    while (left > 0.0).any():
        left = np.maximum(left - change, 0.0)
        travelled = travelled + left
    return np.copysign(travelled, step)


@settings(max_examples=40, deadline=None)
@given(kind=kinds, speed=limits_of_joints, acceleration=accelerations(), actions=outputs(), start=starts)
def test_memory_overwritten_with_the_graphs_own_commands_is_the_graphs_own(
    kind: str,
    speed: tuple[float, float],
    acceleration: tuple[float | None, float | None],
    actions: list[tuple[float, float]],
    start: tuple[float, float],
) -> None:
    """Bit for bit, in float64 arithmetic outside of the graph: what twin and robot do after each period."""
    made = graph(kind=kind, speed=speed, acceleration=acceleration)
    limits = position_limits(made.contract)
    assert limits is not None
    memory = CommandMemory(made.contract)
    state = made.initial_state(1)
    last = np.clip(np.array([start], np.float32), limits.lower, limits.upper).astype(np.float64)
    for action in actions:
        target, after = made.command(torch.tensor([list(action)]), sensors(list(start)), state)
        sent = {"joint_pos_target": target["joint_pos_target"].numpy().astype(np.float64)}
        own = {name: value.numpy().copy() for name, value in after.items()}
        overwritten = {
            name: np.full_like(value, 7.0) if name != "started" else value.copy() for name, value in own.items()
        }
        memory.overwrite(overwritten, sent, {"joint_pos_target": sent["joint_pos_target"] - last})
        for name, value in own.items():
            assert value.tobytes() == overwritten[name].tobytes(), name
        state, last = {**state, **after}, sent["joint_pos_target"]


@settings(max_examples=60, deadline=None)
@given(kind=kinds, speed=limits_of_joints, acceleration=accelerations(), actions=outputs(), start=starts)
def test_the_guard_lets_every_command_of_the_graph_pass(
    kind: str,
    speed: tuple[float, float],
    acceleration: tuple[float | None, float | None],
    actions: list[tuple[float, float]],
    start: tuple[float, float],
) -> None:
    """And both remember the same: what the guard says was sent overwrites the graph's memory with itself."""
    made = graph(kind=kind, speed=speed, acceleration=acceleration)
    guard, memory, state = Guard(made.contract), CommandMemory(made.contract), made.initial_state(1)
    measured = sensors(list(start))
    for period, action in enumerate(actions):
        target, after = made.command(torch.tensor([list(action)]), measured, state)
        result = guard.check(
            now_s=period * PERIOD_S,
            sensor_stamp_s=period * PERIOD_S,
            joint_pos=measured["joint_pos"].numpy(),
            joint_vel=measured["joint_vel"].numpy(),
            targets={name: value.numpy() for name, value in target.items()},
        )
        assert result.state.tolist() == [GuardState.RUN]
        assert result.reasons.tolist() == [0], result.excess
        state = {**state, **after}
        own = {name: value.numpy().tobytes() for name, value in state.items()}
        memory.overwrite({name: value.numpy() for name, value in state.items()}, guard.sent, guard.steps)
        assert {name: value.numpy().tobytes() for name, value in state.items()} == own


def test_limited_positions_need_to_be_measured() -> None:
    """The first command counts from there."""
    document = json.loads(contract().model_dump_json())
    document["robot"]["sensors"] = [{"name": "joint_vel", "size": 2, "unit": "rad/s"}]
    document["safety"]["joints"][0]["velocity_limit"] = document["safety"]["joints"][1]["velocity_limit"] = None
    with pytest.raises(ContractError, match=r"action.*kind: .* needs the sensor 'joint_pos'"):
        parse_contract(json.dumps(document), source="test")
    for joint in document["safety"]["joints"]:
        joint.pop("acceleration_limit", None)
    assert graph_interface(parse_contract(json.dumps(document), source="test")).sensors == {"joint_vel": 2}
    assert graph_interface(contract()).sensors == {"joint_pos": 2, "joint_vel": 2}
