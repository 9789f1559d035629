"""In the twin, a policy with a ramp starts as on a robot: its commands grow out of those at rest."""

from collections.abc import Mapping

import numpy as np
import pytest
from tests.harness.fault_injection.arm_policies import EASED, arm_contract, arm_policy

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sim.engines.protocol import Array
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.policies.ramped import RampedPolicy, ramped

# Positions of shoulder, elbow, slide; the policy commands elbow, shoulder, slide.
STANDS = np.array([[0.2, -0.3, 0.3]])
COMMANDED = np.array([[-0.3, 0.2, 0.3]])
PERIODS = 15


class Constant:
    """A policy without memory that always commands the same."""

    contract: PolicyContract = arm_contract(EASED)

    def reset(self, num_worlds: int) -> None:
        self.worlds = num_worlds

    def reset_worlds(self, mask: Array) -> None:
        del mask

    def __call__(self, sensors: Mapping[str, Array], commands: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"joint_pos_target": np.tile(np.array([[1.2, -1.3, 0.0]], np.float32), (self.worlds, 1))}


def sensors(worlds: int = 1) -> dict[str, Array]:
    return {"joint_pos": np.tile(STANDS, (worlds, 1)), "joint_vel": np.zeros((worlds, 3))}


def test_commands_turn_from_those_at_rest_into_the_policys() -> None:
    policy = ramped(Constant())
    policy.reset(1)
    given = [policy(sensors(), {})["joint_pos_target"][0] for _ in range(PERIODS + 2)]
    share = np.minimum(np.arange(1, PERIODS + 3) / PERIODS, 1.0)[:, None]
    wanted = COMMANDED + share * (np.array([[1.2, -1.3, 0.0]]) - COMMANDED)
    np.testing.assert_allclose(given, wanted, atol=1e-6)


def test_a_world_whose_episode_ends_starts_again_alone() -> None:
    policy = ramped(Constant())
    policy.reset(2)
    for _ in range(PERIODS):
        policy(sensors(2), {})
    policy.reset_worlds(np.array([False, True]))
    found = policy(sensors(2), {})["joint_pos_target"]
    assert found[0] == pytest.approx([1.2, -1.3, 0.0])
    assert found[1] == pytest.approx((COMMANDED + (np.array([[1.2, -1.3, 0.0]]) - COMMANDED) / PERIODS)[0], abs=1e-6)


def test_its_memory_holds_what_the_robot_got() -> None:
    policy = OnnxPolicy(arm_policy(EASED), source="test")
    starting = RampedPolicy(policy)
    starting.reset(1)
    fields = {**sensors(), "goal": np.array([[1.0, 1.0, 0.5]])}
    last = COMMANDED
    for _ in range(PERIODS - 1):
        given = starting(fields, {})["joint_pos_target"]
        np.testing.assert_allclose(policy.state["last_joint_pos_target"], given, atol=1e-6)
        np.testing.assert_allclose(policy.state["step_joint_pos_target"], given - last, atol=1e-6)
        term = policy.contract.action.terms[0]
        action = np.clip((given - np.array(term.offset)) / np.array(term.scale), -1.0, 1.0)
        np.testing.assert_allclose(policy.state["previous_action"], action, atol=1e-5)
        last = given
        assert starting.ramps
    starting(fields, {})
    assert not starting.ramps


def test_a_policy_without_a_ramp_is_left_as_it_is() -> None:
    policy = OnnxPolicy(arm_policy("absolute"), source="test")
    assert ramped(policy) is policy
