"""A task that follows the contract of a policy from elsewhere: its own observation, action, timing and safety."""

import copy
from dataclasses import replace

import numpy as np
from array_api_compat import array_namespace

from physai.sdk.base.errors import TaskError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sim.engines.protocol import Array
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.task import CommandFunction, RewardTerm, Task, Uniforms, WorldView

LEAST = 1e-6
"""Least bound of a command that is stretched."""


def following(task: Task, contract: PolicyContract) -> Task:
    """The task for another contract, to play and to judge in; it has no rewards, as nothing is trained in it.

    Args:
        task: a task for the contract's robot, with the same commands.
        contract: of a policy from elsewhere. Commands are drawn from its whole range.

    Raises:
        TaskError: the contract is of another task, robot or command.
    """
    fields = {field.name: field.size for field in task.contract.command.fields}
    theirs = {field.name: field.size for field in contract.command.fields}
    for what, own, other in (
        ("task", task.contract.task, contract.task),
        ("robot", task.robot.spec, contract.robot),
        ("commands", fields, theirs),
    ):
        if own != other:
            shown = f"{own} and {other}" if what != "robot" else "its joints, gains, limits or sensors"
            raise TaskError(f"the contract of the policy and task {task.name} differ in the {what}: {shown}")
    model = copy.copy(task.model)
    model.opt.timestep = contract.timing.physics_dt
    return replace(
        task,
        model=model,
        contract=contract,
        rewards={"none": RewardTerm(term=_nothing, weight=0.0)},
        success=task.mean_success or task.success,
        critic=_joint_pos,
        critic_size=len(contract.robot.joints),
        command=None if task.command is None else _within(task.command, task.contract, contract),
    )


def _nothing(view: WorldView) -> Array:
    return 0.0 * view.episode_time


def _joint_pos(view: WorldView) -> Array:
    return view.joint_pos


def _within(draw: CommandFunction, own: PolicyContract, contract: PolicyContract) -> CommandFunction:
    """The task's commands, stretched to the whole range of a contract; a command of zero stays zero."""
    bounds = {field.name: (Constant(field.lower), Constant(field.upper)) for field in contract.command.fields}
    drawn_to = {field.name: Constant(np.maximum(field.upper, LEAST)) for field in own.command.fields}

    def drawn(uniforms: Uniforms) -> dict[str, Array]:
        xp = array_namespace(uniforms)
        commands: dict[str, Array] = {}
        for name, value in draw(uniforms).items():
            lower, upper = (bound.like(value) for bound in bounds[name])
            share = value / drawn_to[name].like(value)
            commands[name] = xp.clip(share * xp.where(share < 0.0, -lower, upper), lower, upper)
        return commands

    return drawn
