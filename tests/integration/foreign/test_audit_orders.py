"""Joints in another order are named although their poses differ."""

from pathlib import Path

import numpy as np
import pytest
from tests.integration.foreign.test_audit import SIDES, Arrays, audited, logged, part, sensors
from tests.integration.foreign.test_audit_histories import imported, observation
from tests.integration.foreign.test_import import JOINTS

from physai.sdk.contract.io import load_contract

POSE = [-0.1, 1.0, -1.5, 0.1, 0.9, -1.4, -0.2, 0.8, -1.6, 0.2, 0.7, -1.7]
"""Of the joints in the policy's order, different for each leg."""


@pytest.fixture(scope="module")
def posed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Arrays]:
    """A policy whose legs rest in poses of their own, so that an order moves the pose, too, and its right log."""
    return logged(tmp_path_factory.mktemp("posed"), POSE)


def test_a_right_log_of_other_legs_raises_no_alarm(posed: tuple[Path, Arrays], tmp_path: Path) -> None:
    assert {outcome for outcome, _ in audited(*posed, tmp_path).values()} == {"agrees"}


def differing(found: dict[str, tuple[str, str]]) -> dict[str, str]:
    return {name: text for name, (outcome, text) in found.items() if outcome == "differs"}


def order_of_robot(run: Path) -> list[int]:
    """Which joint of the policy each joint of the robot is."""
    return [JOINTS.index(name) for name in load_contract(run / "task" / "contract.json").robot.joint_names]


def in_order(order: list[int]) -> str:
    return f"in another order: {', '.join(JOINTS[index] for index in order[:6])} …"


@pytest.mark.parametrize("whose", ["robot", "sides"])
def test_targets_in_another_order_with_their_pose_are_named(
    whose: str, posed: tuple[Path, Arrays], tmp_path: Path
) -> None:
    run, log = posed
    order = order_of_robot(run) if whose == "robot" else SIDES
    found = audited(run, {**log, "target": log["target"][:, order]}, tmp_path)
    assert differing(found) == {"target": in_order(order)}
    assert found["gains"] == ("undetermined", "not tested: mend target first")


def test_targets_in_another_order_without_the_pose_are_named(posed: tuple[Path, Arrays], tmp_path: Path) -> None:
    run, log = posed
    found = audited(run, {**log, "target": (log["target"] - POSE)[:, SIDES]}, tmp_path)
    assert differing(found) == {"target": f"without the default pose, {in_order(SIDES)}"}


def test_joints_in_the_robots_order_without_the_policys_pose_are_named(
    posed: tuple[Path, Arrays], tmp_path: Path
) -> None:
    run, log = posed
    order, changed = order_of_robot(run), dict(log)
    part("joint_pos", lambda block, _: (block + POSE)[:, order] - POSE)(changed)
    found = audited(run, changed, tmp_path)
    assert differing(found) == {"joint_pos": in_order(order)}
    assert found["gains"] == ("agrees", "of 12 joints")


def test_sensors_in_the_policys_order_are_named(posed: tuple[Path, Arrays], tmp_path: Path) -> None:
    run, log = posed
    robot = list(load_contract(run / "task" / "contract.json").robot.joint_names)
    columns = [robot.index(name) for name in JOINTS]
    moved = {name: log[name][:, columns] for name in ("joint_pos", "joint_vel", "joint_effort")}
    found = audited(run, {**log, **moved}, tmp_path)
    # The joint at place i of the policy is read at its place in the robot's order, where the log has another one.
    order = order_of_robot(run)
    assert differing(found) == {"joint_pos": in_order(order), "joint_vel": in_order(order)}
    assert found["gains"] == ("undetermined", "not tested: mend joint_pos first")


def test_positions_that_are_no_permutation_are_not_explained(posed: tuple[Path, Arrays], tmp_path: Path) -> None:
    run, log = posed
    changed = dict(log)
    part("joint_pos", lambda block, _: block[:, SIDES] * np.linspace(1.0, 2.0, 12) + 0.1)(changed)
    assert differing(audited(run, changed, tmp_path)) == {"joint_pos": "nothing that is tried explains it"}


def test_histories_in_the_robots_order_without_the_policys_pose_are_named(tmp_path: Path) -> None:
    run = imported(tmp_path / "histories", default_pos=POSE)
    robot = list(load_contract(run / "task" / "contract.json").robot.joint_names)
    log = sensors(robot, np.random.default_rng(5), POSE)
    speeds = 0.05 * log["joint_vel"][:, [robot.index(name) for name in JOINTS]]
    log["observation"] = observation([log["joint_pos"] - POSE, speeds])
    order = order_of_robot(run)
    text = f"in another order: {', '.join(f'joint_pos[{index}]' for index in order[:6])} …"
    assert differing(audited(run, log, tmp_path)) == {"joint_pos": text}
