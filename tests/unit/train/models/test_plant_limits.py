"""Limits on what the plant shows raise no alarm in a sound twin, not even at half their size."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import Guard, Reason
from physai.sim.engines.protocol import Array
from physai.sim.envs.environment import Environment
from physai.sim.tasks.registry import load_task
from physai.train.models.numpy_policy import as_tensors
from physai.train.models.policy_graph import PolicyGraph

WORLDS, DURATION_S = 8, 1.5
ALARMS = Reason.FOLLOWING_ERROR | Reason.SENSOR_CONTRADICTS | Reason.SENSOR_FROZEN | Reason.SENSOR_IMPLAUSIBLE


def halved(contract: PolicyContract) -> PolicyContract:
    """The contract with half the following errors and velocity mismatches."""

    def half(limit: float | None) -> float | None:
        return None if limit is None else 0.5 * limit

    joints = tuple(
        joint.model_copy(
            update={
                "following_error_limit": half(joint.following_error_limit),
                "velocity_mismatch_limit": half(joint.velocity_mismatch_limit),
            }
        )
        for joint in contract.safety.joints
    )
    return contract.model_copy(update={"safety": contract.safety.model_copy(update={"joints": joints})})


def outputs(kind: str, size: int, rng: np.random.Generator) -> Iterator[Array]:
    """Network outputs of each control period at full scale, shape (WORLDS, size)."""
    signs = rng.choice([-1.0, 1.0], (WORLDS, size))
    holds = 1 + np.arange(WORLDS) % 8
    while True:
        yield signs.astype(np.float32)
        turns = {"constant": 0.0, "noise": 1.0, "telegraph": 1.0 / holds[:, None]}[kind]
        signs = np.where(rng.random((WORLDS, 1)) < turns, rng.choice([-1.0, 1.0], (WORLDS, size)), signs)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["constant", "noise", "telegraph"])
@pytest.mark.parametrize(
    "name", ["cartpole-swingup", "pendubot-swingup", "acrobot-swingup", "ur10e-reach", "go2-velocity"]
)
def test_random_policies_raise_no_alarm(name: str, kind: str) -> None:
    """With parameters, noise, delays and pushes drawn at random, until a joint exceeds its speed."""
    task = load_task(name)
    contract = task.contract
    env = Environment(task, WORLDS, seed=7, num_threads=1)
    graph, guard = PolicyGraph(contract, nn.Identity()), Guard(halved(contract), WORLDS)
    now, memory = env.reset(), graph.initial_state(WORLDS)
    source = outputs(kind, contract.action.size, np.random.default_rng(7))
    sound, checked = np.ones(WORLDS, bool), 0
    for period in range(round(DURATION_S / env.step_dt)):
        targets, after = graph.command(torch.as_tensor(next(source)), as_tensors(now.sensors), memory)
        memory = {**memory, **after}
        result = guard.check(
            now_s=period * env.step_dt,
            sensor_stamp_s=period * env.step_dt,
            joint_pos=now.sensors["joint_pos"],
            joint_vel=now.sensors["joint_vel"],
            targets={output: value.numpy() for output, value in targets.items()},
            sensors=now.sensors,
        )
        sound &= (result.reasons & Reason.JOINT_VELOCITY) == 0
        alarms = np.where(sound, result.reasons & ALARMS, 0)
        assert not alarms.any(), Reason(int(np.bitwise_or.reduce(alarms)))
        checked += int(sound.sum())
        now = env.step({output: value.numpy() for output, value in targets.items()})
        if now.done.any():
            guard.reset(now.done)
            sound |= now.done
            for value in memory.values():
                value[torch.as_tensor(now.done)] = 0.0
    assert checked > 0.5 * WORLDS * round(DURATION_S / env.step_dt)
