"""The guard in the loop of the twin: it lets honest motion be, and what it does to a robot is what it says."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from physai.sdk.safety import Guard, GuardResult, GuardState
from physai.sim.envs.environment import Environment
from physai.sim.tasks.registry import load_task

Array = npt.NDArray[np.float64]

TORQUE = "joint_effort_target"


class Loop:
    """A task's worlds with a guard between whatever commands and the joints."""

    def __init__(self, task: str, worlds: int, *, randomise: bool) -> None:
        self.task = load_task(task)
        self.env = Environment(self.task, worlds, seed=3, randomise=randomise, num_threads=1)
        self.guard = Guard(self.task.contract, worlds)
        self.now = self.env.reset()
        self.step = 0

    def place(self, qpos: list[float], qvel: list[float]) -> None:
        view, sensors = self.env.view, self.now.sensors
        view.qpos[...], view.qvel[...] = qpos, qvel
        # The guard would not believe joints that jump from one sample to the next.
        sensors["joint_pos"][...], sensors["joint_vel"][...] = view.joint_pos, view.joint_vel

    def tick(self, targets: Mapping[str, npt.NDArray[np.floating]], **given: Any) -> GuardResult:
        now_s = self.step * self.env.step_dt
        self.step += 1
        view, sensors = self.env.view, self.now.sensors
        result = self.guard.check(
            now_s=now_s,
            sensor_stamp_s=now_s,
            joint_pos=sensors.get("joint_pos", view.joint_pos),
            joint_vel=sensors.get("joint_vel", view.joint_vel),
            targets=targets,
            sensors=sensors,
            **given,
        )
        self.now = self.env.step(result.targets)
        return result

    def energy(self) -> Array:
        """Kinetic and potential energy of the double pendulum [J], from its published parameters, shape (n,)."""
        q1, q2 = self.env.view.joint_pos.T
        v1, v2 = self.env.view.joint_vel.T
        m2, r2, l1, i1, i2 = 0.62556772, 0.25569305, 0.2, 0.0318872 + 0.00226339, 0.05086985
        rotor = 0.00226339
        inertia = i1 + i2 + m2 * l1**2 + 2 * m2 * l1 * r2 * np.cos(q2)
        coupling = i2 + m2 * l1 * r2 * np.cos(q2)
        kinetic = 0.5 * (inertia * v1**2 + 2 * coupling * v1 * v2 + (i2 + rotor) * v2**2)
        moment = 0.52346023 * 0.2 + m2 * l1
        return kinetic - 9.81 * (moment * np.cos(q1) + m2 * r2 * np.cos(q1 + q2))


def test_a_swing_up_at_full_torque_is_never_touched() -> None:
    """Pumps energy at up to 5 N·m and the contract's rate, in randomised worlds with noise.

    The elbow whips through 15 to 20 rad/s again and again; a world that goes beyond the limit is out from there on.
    """
    loop = Loop("pendubot-swingup", 8, randomise=True)
    rate = loop.task.contract.action.terms[0].scale[0]
    torque = np.zeros((8, 1))
    honest = np.ones(8, bool)
    fast_periods, strongest = 0, 0.0
    for _ in range(1800):
        measured = np.abs(loop.now.sensors["joint_vel"]).max(axis=1)
        honest &= measured <= 20.0
        fast_periods += int((honest & (measured > 15.0)).sum())
        wanted = np.where(measured[:, None] < 7.0, 5.0 * np.sign(loop.env.view.joint_vel[:, :1] + 1e-9), 0.0)
        torque = torque + np.clip(wanted - torque, -rate, rate)
        result = loop.tick({TORQUE: torque.astype(np.float32)})
        assert not result.reasons[honest].any()
        assert not result.intervened[honest].any()
        assert (result.targets[TORQUE][honest] == torque[honest].astype(np.float32)).all()
        strongest = max(strongest, float(np.abs(torque[honest]).max()))
    assert honest.sum() >= 3
    assert fast_periods > 100
    assert strongest == pytest.approx(5.0)


def test_an_arm_in_smooth_motion_is_never_touched() -> None:
    """Targets that speed up within the limits to 0.7 of the contract's rate, each joint in its own rhythm."""
    loop = Loop("ur10e-reach", 4, randomise=True)
    scale = np.array(loop.task.contract.action.terms[0].scale)
    (name,) = loop.guard.limits.slices
    target = loop.now.sensors["joint_pos"].astype(np.float64)
    for step in range(200):
        target = target + min(step / 10.0, 1.0) * 0.7 * scale * np.sin(0.15 * step + np.arange(6))
        result = loop.tick({name: target.astype(np.float32)})
        assert not result.reasons.any()
        assert not result.intervened.any()


def falling(loop: Loop, periods: int, **given: Any) -> tuple[Array, GuardResult]:
    """Energy over that many periods, and the last answer."""
    energies: list[Array] = []
    result = None
    for _ in range(periods):
        result = loop.tick({TORQUE: np.zeros((loop.env.num_worlds, 1))}, **given)
        energies.append(loop.energy())
    assert result is not None
    return np.stack(energies), result


def test_damping_takes_energy_out() -> None:
    """In 0.3 s at least three times what the joints' own friction does, and never the other way."""
    damped, free = (Loop("pendubot-swingup", 1, randomise=False) for _ in range(2))
    for loop in (damped, free):
        loop.place([0.5, 0.3], [12.0, -4.0])
    energies, result = falling(damped, 150, stop=True)
    assert result.state[0] == GuardState.PROTECTIVE_STOP
    untouched, _ = falling(free, 150)
    assert (np.diff(energies[:, 0]) < 1e-6).all()
    assert energies[0, 0] - energies[-1, 0] > 3.0 * (energies[0, 0] - untouched[-1, 0]) > 0.0


def test_a_stop_is_believed_only_when_the_joints_are_at_rest() -> None:
    loop = Loop("pendubot-swingup", 1, randomise=False)
    loop.place([1.5, 0.5], [8.0, 3.0])
    speeds: list[float] = []
    stopped: list[bool] = []
    for step in range(1200):
        result = loop.tick({TORQUE: np.zeros((1, 1))}, stop=step == 0)
        speeds.append(float(np.abs(loop.now.sensors["joint_vel"]).max()))
        stopped.append(bool(result.stopped[0]))
    first = stopped.index(True)
    # STILL_S is 125 periods; what the guard saw in period k was measured at the end of k - 1.
    assert max(speeds[first - 125 : first]) <= 0.4
    assert max(speeds[: first - 125]) > 0.4
    assert first > 200
    assert all(stopped[first:])


def test_a_policy_that_dies_leaves_an_arm_where_it_is() -> None:
    loop = Loop("ur10e-reach", 1, randomise=False)
    (name,) = loop.guard.limits.slices
    target = loop.now.sensors["joint_pos"].astype(np.float64)
    for _ in range(20):
        target = target + 0.02
        loop.tick({name: target})
    result = None
    for _ in range(15):
        result = loop.tick({name: np.full_like(target, np.nan)})
    assert result is not None
    assert result.state[0] == GuardState.HOLD
    assert result.targets[name] == pytest.approx(target)
    assert loop.env.view.joint_pos == pytest.approx(target, abs=0.05)
    assert np.abs(loop.env.view.joint_vel).max() < 0.1
