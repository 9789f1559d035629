"""Bindings: the built-in ones fit their robots, bad files say what is wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest

from physai.sdk.base.errors import UnknownNameError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import TransportError, required_fields
from physai.sim.tasks.registry import task_names
from physai.transport.binding import (
    MAX_FILE_BYTES,
    Binding,
    built_in_bindings,
    find_binding,
    load_binding,
    made_binding,
)
from physai.transport.dds.codec.field_layout import read_vectors, topic_layout, written_vectors

GOOD = """
robot: cartpole
reads:
  - topic: /joint_states
    type: sensor_msgs/msg/JointState
    fields: {joint_pos: position, joint_vel: velocity}
writes:
  - topic: /joint_command
    type: sensor_msgs/msg/JointState
    fields: {joint_effort_target: effort}
"""


def bound(binding: Binding, contract: PolicyContract) -> tuple[set[str], set[str]]:
    """Fields the binding's topics carry, of those read and of those written."""
    found: list[set[str]] = []
    for topics, vectors in (
        (binding.reads, read_vectors(contract)),
        (binding.writes, written_vectors(contract)),
    ):
        layouts = [topic_layout(topic, vectors) for topic in topics]
        found.append({one.vector.name for layout in layouts if layout for one in layout.placed})
    return found[0], found[1]


def found_binding(contract: PolicyContract) -> Binding:
    return find_binding(contract, None)


def test_four_robots_have_their_own() -> None:
    assert built_in_bindings() == ("cartpole", "double_pendulum", "go2", "ur10e", "ur10e_trajectory")


def test_bindings_are_found_by_name(contract_of: Callable[[str], PolicyContract]) -> None:
    arm = contract_of("ur10e-reach")
    assert find_binding(arm, "ur10e") == find_binding(arm, None)
    assert find_binding(arm, "ur10e_trajectory").writes[0].type == "trajectory_msgs/msg/JointTrajectory"
    with pytest.raises(UnknownNameError, match="no binding named 'ur10'; did you mean ur10e"):
        find_binding(arm, "ur10")
    with pytest.raises(TransportError, match="binding go2 is of robot go2, the contract's is ur10e"):
        find_binding(arm, "go2")


@pytest.mark.parametrize("name", ["ur10e", "ur10e_trajectory"])
def test_every_binding_of_the_arm_carries_all_that_is_needed(
    name: str, contract_of: Callable[[str], PolicyContract]
) -> None:
    contract = contract_of("ur10e-reach")
    reads, writes = bound(find_binding(contract, name), contract)
    assert reads >= set(required_fields(contract))
    assert writes == set(written_vectors(contract))


@pytest.mark.parametrize("task", task_names())
@pytest.mark.parametrize("find", [found_binding, made_binding])
def test_a_binding_carries_all_that_is_needed(
    task: str, find: Callable[[PolicyContract], Binding], contract_of: Callable[[str], PolicyContract]
) -> None:
    contract = contract_of(task)
    reads, writes = bound(find(contract), contract)
    assert reads >= set(required_fields(contract))
    assert writes == set(written_vectors(contract))


def test_a_file_takes_precedence(tmp_path: Path, contract_of: Callable[[str], PolicyContract]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD.replace("/joint_states", "/mine"))
    assert find_binding(contract_of("cartpole-swingup"), str(path)).reads[0].topic == "/mine"
    with pytest.raises(TransportError, match=r"mine\.yaml is of robot cartpole, the contract's is ur10e"):
        find_binding(contract_of("ur10e-reach"), str(path))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("position,", "positions,", "a sensor_msgs/msg/JointState has no part 'positions'; it has position, velocity"),
        ("topic: /joint_states", "topic: joint_states", r"reads\.0\.topic: String should match pattern"),
        ("sensor_msgs/msg/JointState", "my_msgs/msg/Own", r"reads\.0\.type: Input should be"),
        ("joint_vel: velocity", "joint_vel: [velocity, effort]", "only parts of fixed size can be put together"),
        ("/joint_command", "/joint_states", "topic '/joint_states' occurs twice"),
        ("robot: cartpole", "robot: cartpole\nspeed: 3", "speed: Extra inputs are not permitted"),
        ("robot: cartpole", "robot: [", "not YAML"),
        ("robot: cartpole", "robot: &a cartpole\nother: *a", "aliases are not allowed"),
        (
            "fields: {joint_pos",
            "timeout_s: 1.0\n    at_timeout: zero\n    fields: {joint_pos",
            "zeros are no sensor_msgs",
        ),
        ("fields: {joint_pos", "timeout_s: .inf\n    fields: {joint_pos", r"reads\.0\.timeout_s: Input should be"),
        ("robot: cartpole", "robot: cartpole\nformat_version: 2", "format_version: Input should be 1"),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(TransportError, match=problem):
        load_binding(path)


def test_files_have_bounds(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(GOOD + "#" * MAX_FILE_BYTES)
    with pytest.raises(TransportError, match=f"more than {MAX_FILE_BYTES} bytes"):
        load_binding(path)
    with pytest.raises(TransportError, match="cannot be read: no such file"):
        load_binding(tmp_path / "none.yaml")


def test_an_array_holds_one_field(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(GOOD.replace("sensor_msgs/msg/JointState", "std_msgs/msg/Float64MultiArray", 1).replace(
        "{joint_pos: position, joint_vel: velocity}", "{joint_pos: data, joint_vel: data}"
    ))  # fmt: skip
    with pytest.raises(TransportError, match="holds one field, got joint_pos, joint_vel"):
        load_binding(path)


def with_gains(folder: Path, contract: PolicyContract, joint: str, **gains: float) -> Path:
    topics = made_binding(contract).model_dump_json(exclude={"gains"})
    text = ", ".join(f"{name}: {value}" for name, value in gains.items())
    path = folder / "robot.yaml"
    path.write_text(f"{topics[:-1]}, gains: {{{joint}: {{{text}}}}}}}")
    return path


def test_gains_that_the_drivers_fix_are_those_of_the_policy_within_one_percent(
    contract_of: Callable[[str], PolicyContract], tmp_path: Path
) -> None:
    contract = contract_of("go2-velocity")
    joint = contract.robot.joints[3]
    near = {"stiffness": 1.009 * joint.stiffness, "damping": 0.991 * joint.damping}
    assert find_binding(contract, str(with_gains(tmp_path, contract, joint.name, **near))).gains
    for label in ("stiffness", "damping"):
        far = {**near, label: 1.02 * getattr(joint, label)}
        with pytest.raises(TransportError) as caught:
            find_binding(contract, str(with_gains(tmp_path, contract, joint.name, **far)))
        assert (
            f"{joint.name}: the robot's drivers have a {label} of {far[label]:g}, the policy is for "
            f"{getattr(joint, label):g}" in str(caught.value)
        )
    with pytest.raises(TransportError, match="no joint named 'elbow'"):
        find_binding(contract, str(with_gains(tmp_path, contract, "elbow", **near)))
    with pytest.raises(TransportError, match="greater than or equal to 0"):
        find_binding(contract, str(with_gains(tmp_path, contract, joint.name, stiffness=-1.0, damping=0.0)))
