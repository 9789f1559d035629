"""An upright pendulum that a policy is to hold: gravity shows, and multiplies, an offset of its encoder."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.support.pusher_task import make_task as pusher

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import ActionSpec
from physai.sim.robots import load_robot
from physai.sim.tasks.common import compiled, envelope
from physai.sim.tasks.task import Success, Task


def make_task() -> Task:
    """2.4 s episodes, 50 Hz; success is to be within 0.1 rad of the top for the last 0.4 s."""
    robot, base = load_robot(Path(__file__).with_name("balancer.xml")), pusher()
    (term,) = base.contract.action.terms
    contract = PolicyContract(
        task="balancer",
        robot=robot.spec,
        observation=base.contract.observation,
        action=ActionSpec(terms=(term.model_copy(update={"joints": ("hinge",)}),)),
        command=base.contract.command,
        timing=base.contract.timing,
        safety=envelope(robot.spec, parity_tolerance=0.5),
    )
    return replace(
        base,
        name="balancer",
        summary="hold the pendulum up",
        robot=robot,
        model=compiled(robot, physics_dt=0.01),
        contract=contract,
        success=Success(
            condition=lambda view: np.abs(view.joint_pos[:, 0]) < 0.1, hold_s=0.4, text="within 0.1 rad for 0.4 s"
        ),
    )
