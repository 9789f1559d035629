"""The policy graph: every kind of observation and action by numbers worked out by hand."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import ChainSegment, JointSpec, KinematicChain, RobotSpec, SensorField
from physai.sdk.contract.terms import (
    ActionSpec,
    ActionTerm,
    CommandField,
    CommandSpec,
    ObservationSpec,
    ObservationTerm,
    TimingSpec,
)
from physai.sim.tasks import rotations
from physai.sim.tasks.common import envelope
from physai.train.models.kinematics import projected_gravity
from physai.train.models.policy_graph import ActorGRU, ActorMLP, PolicyGraph, State

HALF = math.sqrt(0.5)
POSITIONS = [0.5, -1.0]
VELOCITIES = [2.0, -3.0]
GOAL = [0.0, 0.5, 0.1, 1.0, 0.0, 0.0, 0.0]


def joint(name: str, **fields: Any) -> JointSpec:
    limits = {"position_lower": -2.0, "position_upper": 2.0}
    return JointSpec(name=name, kind="revolute", effort_limit=10.0, **(limits | fields))


def absolute(**fields: Any) -> ActionTerm:
    """Position commands 0.25 ± 0.5 to b, -0.5 ± 1 to a, bounded to ±1."""
    bounds = {"lower": (-1.0, -1.0), "upper": (1.0, 1.0)}
    values: dict[str, Any] = {"kind": "joint_pos", "scale": (0.5, 1.0), "offset": (0.25, -0.5), **bounds}
    return ActionTerm(joints=("b", "a"), **(values | fields))


Term = dict[str, Any]
"""Fields of an observation term, without its name."""


def contract(*terms: Term, actions: tuple[ActionTerm, ...] = (), chain: str = "ee.tip") -> PolicyContract:
    """Two joints a and b, an IMU, a thermometer of three sensors, a pose command and a speed command."""
    robot = RobotSpec(
        name="arm",
        base="floating",
        joints=(joint("a"), joint("b", default_pos=0.25)),
        sensors=(
            SensorField(name="joint_pos", size=2, unit="rad"),
            SensorField(name="joint_vel", size=2, unit="rad/s"),
            SensorField(name="joint_temperature", size=3, unit="K"),
            SensorField(name="imu_quat", size=4, unit="", frame="w"),
        ),
        chains=(
            KinematicChain(
                name=chain,
                segments=(
                    ChainSegment(translation=(0.0, 0.0, 0.0), quat=(1.0, 0.0, 0.0, 0.0), joint="a"),
                    ChainSegment(translation=(0.5, 0.0, 0.0), quat=(1.0, 0.0, 0.0, 0.0)),
                ),
            ),
        ),
    )
    big = (100.0,) * 7
    return PolicyContract(
        task="test",
        robot=robot,
        observation=ObservationSpec(
            terms=tuple(ObservationTerm(name=f"term{index}", **term) for index, term in enumerate(terms))
        ),
        action=ActionSpec(terms=actions or (absolute(),)),
        command=CommandSpec(
            fields=(
                CommandField(name="pose", size=7, unit="m, 1", lower=tuple(-x for x in big), upper=big),
                CommandField(name="speed", size=2, unit="m/s", lower=(-9.0, -9.0), upper=(9.0, 9.0)),
            )
        ),
        timing=TimingSpec(
            control_dt=0.01, physics_dt=0.002, decimation=5, deadline_s=0.008, max_observation_age_s=0.02
        ),
        safety=envelope(robot, parity_tolerance=0.01),
    )


def graph(*terms: Term, **options: Any) -> PolicyGraph:
    made = contract(*terms, **options)
    return PolicyGraph(made, ActorMLP(made.observation_size, made.action.size, (8,), "tanh"))


def inputs(worlds: int = 1, /, **changes: list[float]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Sensors and commands, the same in every world."""
    values = {
        "joint_pos": POSITIONS,
        "joint_vel": VELOCITIES,
        "joint_temperature": [300.0, 301.0, 302.0],
        "imu_quat": [1.0, 0.0, 0.0, 0.0],
        "pose": GOAL,
        "speed": [1.0, -2.0],
    }
    tensors = {name: torch.tensor([value] * worlds) for name, value in (values | changes).items()}
    return tensors, {name: tensors.pop(name) for name in ("pose", "speed")}


def observed(*terms: Term, **changes: list[float]) -> list[float]:
    """The observation of a policy that has just started."""
    made = graph(*terms)
    vector, _ = made.observe(*inputs(1, **changes), made.initial_state(1))
    assert vector.shape == (1, made.contract.observation_size)
    return vector[0].numpy().tolist()


VEL: Term = {"kind": "sensor", "source": "joint_vel"}


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (VEL, [2.0, -3.0]),
        (VEL | {"joints": ("b",)}, [-3.0]),
        (VEL | {"joints": ("b", "a")}, [-3.0, 2.0]),
        # scale · (clip(x) - offset): 0.1 · (2 - 0.5), 0.1 · (-2.5 - 0.5)
        (VEL | {"scale": 0.1, "offset": 0.5, "clip": 2.5}, [0.15, -0.3]),
        # No joint sensor, though its name looks like one: all of its elements.
        ({"kind": "sensor", "source": "joint_temperature", "offset": 300.0}, [0.0, 1.0, 2.0]),
        ({"kind": "sensor", "source": "imu_quat"}, [1.0, 0.0, 0.0, 0.0]),
        ({"kind": "joint_pos_rel"}, [0.5, -1.25]),
        ({"kind": "joint_pos_rel", "joints": ("b",)}, [-1.25]),
        ({"kind": "sin_cos", "joints": ("b", "a")}, [math.sin(-1), math.sin(0.5), math.cos(-1), math.cos(0.5)]),
        ({"kind": "projected_gravity"}, [0.0, 0.0, -1.0]),
        ({"kind": "command", "source": "speed", "scale": 2.0}, [2.0, -4.0]),
        ({"kind": "previous_action"}, [0.0, 0.0]),
        ({"kind": "last_target"}, [0.0, 0.0]),
    ],
)
def test_kinds_of_observations(term: Term, expected: list[float]) -> None:
    assert observed(term) == pytest.approx(expected, abs=1e-6)


def test_terms_stand_in_the_contracts_order() -> None:
    terms = ({"kind": "command", "source": "speed"}, VEL | {"joints": ("a",)}, {"kind": "joint_pos_rel"})
    assert observed(*terms) == pytest.approx([1.0, -2.0, 2.0, 0.5, -1.25])
    slices = contract(*terms).observation_slices
    assert slices == {"term0": slice(0, 2), "term1": slice(2, 3), "term2": slice(3, 5)}


@pytest.mark.parametrize("chain", ["ee.tip", "keys", "ee"])
def test_a_pose_error(chain: str) -> None:
    """Joint a at 90°: the tip at (0, 0.5, 0), turned by 90° about z; the goal 0.1 m above, not turned."""
    made = graph({"kind": "pose_error", "source": "pose", "chain": chain}, chain=chain)
    vector, _ = made.observe(*inputs(joint_pos=[math.pi / 2, 0.0]), made.initial_state(1))
    assert vector[0].numpy().tolist() == pytest.approx([0.0, 0.0, 0.1, 0.0, 0.0, -math.sqrt(2.0)], abs=1e-6)


@pytest.mark.parametrize(
    ("quat", "gravity"),
    [
        ([HALF, HALF, 0.0, 0.0], [0.0, -1.0, 0.0]),  # rolled 90° to its right side: y points up
        ([HALF, 0.0, HALF, 0.0], [1.0, 0.0, 0.0]),  # pitched 90° down: x points to the ground
        ([HALF, 0.0, 0.0, HALF], [0.0, 0.0, -1.0]),  # turned about the vertical
        ([0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0]),  # upside down
    ],
)
def test_gravity_in_the_base_frame(quat: list[float], gravity: list[float]) -> None:
    assert observed({"kind": "projected_gravity"}, imu_quat=quat) == pytest.approx(gravity, abs=1e-6)


unit = st.floats(-1.0, 1.0)


@given(st.tuples(unit, unit, unit, unit).filter(lambda q: math.hypot(*q) > 0.1))
def test_gravity_against_a_rotation(quat: tuple[float, float, float, float]) -> None:
    q = np.array([quat]) / math.hypot(*quat)
    gravity = projected_gravity(torch.tensor(q)).numpy()
    assert gravity == pytest.approx(rotations.rotate_inverse(q, np.array([[0.0, 0.0, -1.0]]), np), abs=1e-12)
    assert projected_gravity(torch.tensor(-q)).numpy() == pytest.approx(gravity, abs=1e-12)


def play(made: PolicyGraph, samples: list[list[float]], worlds: int = 1) -> tuple[list[list[float]], State]:
    """Observations of world 0 over some samples of joint_vel, and the state after them."""
    state = made.initial_state(worlds)
    seen: list[list[float]] = []
    for sample in samples:
        sensors, commands = inputs(worlds, joint_vel=sample)
        vector, _ = made.observe(sensors, commands, state)
        seen.append(vector[0].numpy().tolist())
        _, state = made(sensors, commands, state)
    return seen, state


def test_a_history_starts_full_and_moves_towards_the_oldest() -> None:
    made = graph(VEL | {"history": 3, "scale": 2.0})
    seen, state = play(made, [[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]])
    assert seen == [
        [2.0, 20.0, 2.0, 20.0, 2.0, 20.0],
        [2.0, 20.0, 2.0, 20.0, 4.0, 40.0],
        [2.0, 20.0, 4.0, 40.0, 6.0, 60.0],
        [4.0, 40.0, 6.0, 60.0, 8.0, 80.0],
    ]
    assert state["history_term0"][0].numpy().tolist() == seen[-1]


def test_a_world_that_is_reset_fills_its_history_again() -> None:
    made = graph(VEL | {"history": 2})
    _, state = play(made, [[1.0, 10.0], [2.0, 20.0]], worlds=2)
    for memory in state.values():
        memory[1] = 0.0
    vector, _ = made.observe(*inputs(2, joint_vel=[3.0, 30.0]), state)
    assert vector.numpy().tolist() == [[2.0, 20.0, 3.0, 30.0], [3.0, 30.0, 3.0, 30.0]]


def test_the_previous_action_is_what_the_network_said_bounded() -> None:
    made = graph({"kind": "previous_action", "history": 2})
    sensors, commands = inputs()
    _, memory = made.command(torch.tensor([[0.5, -3.0]]), sensors, made.initial_state(1))
    vector, _ = made.observe(sensors, commands, {**made.initial_state(1), **memory})
    assert vector[0].numpy().tolist() == [0.0, 0.0, 0.5, -1.0]


def test_the_last_target_is_relative_to_the_measured_position() -> None:
    """Commanded 0.25 + 0.5 · 0.5 = 0.5 to b at -1, and -0.5 - 1 → -1 to a at 0.5: b is 1.5 below, a 1.5 above."""
    made = graph({"kind": "last_target", "scale": 2.0})
    sensors, commands = inputs()
    targets, memory = made.command(torch.tensor([[0.5, -1.0]]), sensors, made.initial_state(1))
    assert targets["joint_pos_target"][0].numpy().tolist() == [0.5, -1.0]
    vector, _ = made.observe(sensors, commands, {**made.initial_state(1), **memory})
    assert vector[0].numpy().tolist() == [3.0, -3.0]


def test_last_efforts_are_absolute() -> None:
    effort = ActionTerm(kind="joint_effort", joints=("a",), scale=(4.0,), offset=(1.0,), lower=(-5.0,), upper=(5.0,))
    made = graph({"kind": "last_target"}, actions=(effort,))
    sensors, commands = inputs()
    _, memory = made.command(torch.tensor([[0.5]]), sensors, made.initial_state(1))
    vector, _ = made.observe(sensors, commands, {**made.initial_state(1), **memory})
    assert vector[0].numpy().tolist() == [3.0]


def commanded(term: ActionTerm, actions: list[list[float]], positions: list[float] = POSITIONS) -> list[list[float]]:
    """Commands of one action term for a sequence of network outputs."""
    made = graph(VEL, actions=(term,))
    state = made.initial_state(1)
    targets: list[list[float]] = []
    for action in actions:
        sensors, _ = inputs(joint_pos=positions)
        target, memory = made.command(torch.tensor([action]), sensors, state)
        state = {**state, **memory}
        targets.append(target[term.target_name][0].numpy().tolist())
    return targets


def test_absolute_commands() -> None:
    """offset + scale · a with a bounded to ±1, then bounded to ±1: the joints in the term's order."""
    assert commanded(absolute(), [[0.0, 0.0], [0.5, 1.0], [9.0, -9.0]]) == [[0.25, -0.5], [0.5, 0.5], [0.75, -1.0]]


def test_incremental_positions_start_where_the_joint_is() -> None:
    """b from -1 by 0.5 a step up to its bound, a from 0.5 by -0.25."""
    term = absolute(kind="joint_pos_incremental", scale=(0.5, 0.25), upper=(0.25, 1.0))
    actions = [[1.0, -1.0], [1.0, -0.5], [5.0, 0.0], [-0.5, 0.0]]
    assert commanded(term, actions) == [[-0.5, 0.25], [0.0, 0.125], [0.25, 0.125], [0.0, 0.125]]


def test_incremental_efforts_start_at_none() -> None:
    term = ActionTerm(
        kind="joint_effort_incremental", joints=("b",), scale=(2.0,), offset=(0.0,), lower=(-3.0,), upper=(3.0,)
    )
    assert commanded(term, [[0.5], [1.0], [1.0], [-0.25]]) == [[1.0], [3.0], [3.0], [2.5]]


def test_two_action_terms_share_the_networks_output() -> None:
    position = ActionTerm(kind="joint_pos", joints=("b",), scale=(0.5,), offset=(0.0,), lower=(-1.0,), upper=(1.0,))
    effort = ActionTerm(kind="joint_effort", joints=("a",), scale=(2.0,), offset=(0.0,), lower=(-5.0,), upper=(5.0,))
    made = graph(VEL, actions=(position, effort))
    targets, _ = made.command(torch.tensor([[0.5, -1.0]]), inputs()[0], made.initial_state(1))
    assert {name: target[0].numpy().tolist() for name, target in targets.items()} == {
        "joint_pos_target": [0.25],
        "joint_effort_target": [-2.0],
    }


@settings(max_examples=30)
@given(
    st.sampled_from(["joint_pos", "joint_pos_incremental"]),
    st.lists(st.tuples(st.floats(-50.0, 50.0), st.floats(-50.0, 50.0)), min_size=1, max_size=8),
    st.tuples(st.floats(-2.0, 2.0), st.floats(-2.0, 2.0)),
)
def test_no_network_output_leaves_the_bounds(
    kind: Any, actions: list[tuple[float, float]], positions: tuple[float, float]
) -> None:
    term = absolute(kind=kind, lower=(-0.75, -0.5), upper=(0.5, 1.0))
    for b, a in commanded(term, [list(action) for action in actions], list(positions)):
        assert -0.75 <= b <= 0.5
        assert -0.5 <= a <= 1.0


EVERY_KIND: tuple[Term, ...] = (
    VEL | {"history": 3},
    {"kind": "sin_cos"},
    {"kind": "joint_pos_rel"},
    {"kind": "projected_gravity"},
    {"kind": "command", "source": "speed"},
    {"kind": "pose_error", "source": "pose", "chain": "ee.tip"},
    {"kind": "previous_action"},
    {"kind": "last_target"},
)


def randomise(module: nn.Module) -> None:
    """The same random weights each time, large enough to matter."""
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, 0.0, 0.5, generator)


def recurrent() -> PolicyGraph:
    """A graph with every kind of term and a GRU."""
    made = contract(*EVERY_KIND, actions=(absolute(kind="joint_pos_incremental"),))
    policy = PolicyGraph(made, ActorGRU(made.observation_size, made.action.size, (8,), "elu", 5))
    randomise(policy)
    return policy


def test_the_state_is_named_and_starts_at_zero() -> None:
    policy = recurrent()
    assert policy.state_sizes == {
        "started": 1,
        "history_term0": 6,
        "last_joint_pos_target": 2,
        "previous_action": 2,
        "hidden": 5,
    }
    assert all(not memory.any() for memory in policy.initial_state(3).values())
    assert {name: memory.shape for name, memory in policy.initial_state(3).items()} == {
        name: (3, size) for name, size in policy.state_sizes.items()
    }


def noise(worlds: int, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    sensors, commands = inputs(worlds)
    generator = torch.Generator().manual_seed(seed)
    for fields in (sensors, commands):
        for name, value in fields.items():
            fields[name] = value + 0.1 * torch.randn(value.shape, generator=generator)
    return sensors, commands


@torch.no_grad()
def test_worlds_do_not_touch_each_other() -> None:
    policy = recurrent()
    together, alone = policy.initial_state(4), policy.initial_state(1)
    for step in range(5):
        sensors, commands = noise(4, step)
        targets, together = policy(sensors, commands, together)
        own = ({name: value[2:3] for name, value in fields.items()} for fields in (sensors, commands))
        single, alone = policy(*own, alone)
        assert torch.allclose(single["joint_pos_target"][0], targets["joint_pos_target"][2], atol=1e-6)
    assert list(together) == list(policy.state_sizes)


@torch.no_grad()
def test_the_whole_is_its_stages() -> None:
    """What the learner calls one by one is what is exported as one."""
    policy = recurrent()
    state = policy.initial_state(2)
    for step in range(3):
        sensors, commands = noise(2, step)
        observation, histories = policy.observe(sensors, commands, state)
        action, hidden = policy.actor(policy.normaliser(observation), state["hidden"])
        targets, memory = policy.command(action, sensors, state)
        whole, state = policy(sensors, commands, state)
        assert torch.equal(whole["joint_pos_target"], targets["joint_pos_target"])
        expected = {**histories, **memory, "hidden": hidden}
        assert all(torch.equal(state[name], expected[name]) for name in policy.state_sizes)
