"""Rollout of a batch of episodes: in each control period the exported graph, then the guard, then the twin."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.policy.header import STATE_PREFIX
from physai.sdk.safety import Guard, GuardResult, Reason
from physai.sdk.safety.start import StartGate
from physai.sim.engines.protocol import Array, CapacityError
from physai.sim.envs.environment import Environment
from physai.sim.envs.rng import Seeds, Stream, uniform
from physai.sim.envs.step_result import StepResult
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.robots.spec import joint_columns
from physai.sim.tasks.task import Task
from physai.twin.model.conditions import OVERRUN_SHARE
from physai.twin.model.twin import Twin
from physai.twin.rollouts.batch import Batch, BatchResult, Bools
from physai.twin.rollouts.worlds import EpisodeWorlds, build_worlds

HELD_SAMPLES = 500
"""Number of samples of the success condition per episode."""

_ROOMS = 5
"""How often a batch is begun again with more memory for contacts."""
_STALE = np.uint32(Reason.SENSOR_STALE)

POSITION, SPEED, EFFORT = 1, 2, 4
"""Bits of `BatchResult.broken_limits`."""


@dataclass(frozen=True)
class RolloutTick:
    """One control period, as passed to an observer."""

    step: int
    before: StepResult
    """Input of the policy."""
    qpos: Array
    """State before the step, shape (n, nq)."""
    qvel: Array
    """Velocity before the step, shape (n, nv)."""
    guarded: GuardResult
    after: StepResult
    """Result of the step."""


Observer = Callable[[Environment, RolloutTick], None]


def play_batch(
    policy: OnnxPolicy, task: Task, twin: Twin, batch: Batch, *, observer: Observer | None = None
) -> BatchResult:
    """Play every episode of a batch to its end.

    Args:
        policy: the graph under test.
        task: the task to play.
        twin: source of the model parameters.
        batch: seeds and conditions.
        observer: called after every control period.

    Raises:
        ModelError: the batch's engine cannot play the task.
    """
    room: tuple[int, int] | None = None
    for _ in range(_ROOMS - 1):
        try:
            return _play(policy, task, build_worlds(task, twin, batch, room=room), batch, observer)
        except CapacityError as error:
            # What a second engine needs is known only once it has played.
            room = error.max_contacts, error.max_constraints
    return _play(policy, task, build_worlds(task, twin, batch, room=room), batch, observer)


def _play(
    policy: OnnxPolicy, task: Task, worlds: EpisodeWorlds, batch: Batch, observer: Observer | None
) -> BatchResult:
    env = worlds.env
    count, steps = env.num_worlds, round(task.episode_length_s / env.step_dt)
    tally = EpisodeTally(task.contract, count)
    visits = GraphInputs(policy, batch.visits, count, steps)
    guard, gate, begins = Guard(task.contract, count), StartGate(task.contract, count), np.ones(count, bool)
    overruns = Overruns(worlds.seeds, batch.condition.late_periods)
    early_step = round(batch.early_s / env.step_dt) if batch.early_s > 0.0 else -1
    now = env.reset(worlds.seeds)
    policy.reset(count)
    for step in range(steps):
        if step == early_step:
            tally.note_early(env)
        visits.note(step, now, policy)
        if step % max(1, steps // HELD_SAMPLES) == 0:
            tally.note_held(worlds.task.success.condition(env.view))
        late = overruns.at(step)
        guarded = decide(guard, policy, now, worlds, step, late, gate=gate, begins=begins)
        qpos, qvel = env.view.qpos.copy(), env.view.qvel.copy()
        after = env.step(guarded.targets)
        tally.add(step, env, guarded, after, late)
        if observer is not None:
            observer(env, RolloutTick(step, now, qpos, qvel, guarded, after))
        now = after
        begins = now.done
        if begins.any():
            policy.reset_worlds(begins)
            guard.reset(begins)
        if not tally.running.any():
            break
    return tally.result(worlds, visits.inputs(), overruns.count)


@dataclass(frozen=True)
class Sensed:
    """Input of policy and guard in a control period."""

    stamp_s: float | Array
    """Time of the sample, scalar or shape (n,)."""
    age_s: float | Array
    """Age of the sample when the command is sent, scalar or shape (n,)."""
    joint_pos: Array
    """Joint positions for the guard, shape (n, joints)."""
    joint_vel: Array
    """Joint velocities for the guard, shape (n, joints)."""
    sensors: Mapping[str, Array]
    """Sensor fields by name, shape (n, size) each."""
    commands: Mapping[str, Array]
    """Command fields by name, shape (n, size) each."""


def decide(
    guard: Guard,
    policy: OnnxPolicy,
    now: StepResult,
    worlds: EpisodeWorlds,
    step: int,
    late: Bools,
    *,
    gate: StartGate,
    begins: Bools,
) -> GuardResult:
    """Run policy and guard for one control period of simulated worlds; `begins` are those in their first one."""
    # The guard gets the policy's joint sensors; the true state stands in for those the policy does not use.
    view, age_s = worlds.env.view, worlds.sensor_age_s
    sensed = Sensed(
        stamp_s=step * worlds.env.step_dt - age_s,
        age_s=age_s,
        joint_pos=now.sensors.get("joint_pos", view.joint_pos),
        joint_vel=now.sensors.get("joint_vel", view.joint_vel),
        sensors=now.sensors,
        commands=now.commands,
    )
    if begins.any():
        gate.begin(gate.at_rest(sensed.joint_pos), begins)
    return decide_on(guard, policy, sensed, late, gate)


def decide_on(
    guard: Guard, policy: OnnxPolicy, sensed: Sensed, late: Bools, gate: StartGate | None = None
) -> GuardResult:
    """Run policy and guard for one control period, bit for bit like the robot's runtime."""
    with np.errstate(all="ignore"):
        guard.observe(
            stamp_s=sensed.stamp_s, joint_pos=sensed.joint_pos, joint_vel=sensed.joint_vel, sensors=sensed.sensors
        )
        asks = guard.asks
        targets: Mapping[str, Array] = policy(sensed.sensors, sensed.commands)
        started = gate if gate is not None and gate.ramps else None
        if started is not None:
            targets = started.blend(targets)
        guarded = guard.decide(age_s=sensed.age_s, targets=targets, deadline_missed=late)
        guard.commit()
    if started is not None or guarded.intervened.any():
        # Where the runtime would not have run the policy, its state must not advance. Where the robot got other
        # commands than the policy's, its memory holds what was sent.
        unasked = ~asks | ((guarded.reasons & _STALE) != 0)
        policy.undo(unasked)
        replaced = guarded.intervened
        if started is not None:
            started.undo(unasked)
            replaced = replaced | started.ramping
        policy.remember(guard.sent, guard.steps, replaced)
    return guarded


class Overruns:
    """Loop overruns: one starts with probability OVERRUN_SHARE per control period and lasts `periods`."""

    def __init__(self, seeds: Seeds, periods: int) -> None:
        """`seeds` of the episodes, shape (n,); `periods` 0 for no overruns."""
        self._seeds, self._periods = seeds, periods
        self._left = np.zeros(len(seeds), np.int64)
        self.count = np.zeros(len(seeds), np.int64)

    def at(self, step: int) -> Bools:
        """Return the worlds that are late in this step, shape (n,); call it once per step, in order."""
        if not self._periods:
            return np.zeros(len(self._left), bool)
        # Start at step 1: step 0 of this stream draws the delays.
        begins = uniform(self._seeds, Stream.DELAY, 1, steps=step + 1)[:, 0] < OVERRUN_SHARE
        self._left = np.where(begins, self._periods, np.maximum(self._left - 1, 0))
        self.count += self._left > 0
        return self._left > 0


class GraphInputs:
    """Recorder of graph inputs at evenly spaced steps of the episodes."""

    def __init__(self, policy: OnnxPolicy, wanted: int, worlds: int, steps: int) -> None:
        """Record `wanted` rows from `worlds` episodes of at most `steps` steps."""
        per_world = -(-wanted // worlds)
        self._steps = set(np.linspace(0, steps - 1, per_world).astype(int).tolist()) if wanted else set[int]()
        self._wanted, self._names = wanted, tuple(policy.header.inputs)
        self._rows: list[dict[str, Array]] = []

    def note(self, step: int, now: StepResult, policy: OnnxPolicy) -> None:
        """Record the policy's next inputs if this step is sampled."""
        if step not in self._steps:
            return
        fields: dict[str, Any] = {**now.sensors, **now.commands}
        fields.update({STATE_PREFIX + name: value for name, value in policy.state.items()})
        self._rows.append({name: np.array(fields[name], np.float32) for name in self._names})

    def inputs(self) -> dict[str, Array]:
        """Return the inputs by name, shape (rows, size); empty if none are wanted."""
        if not self._rows:
            return {}
        return {name: np.concatenate([row[name] for row in self._rows])[: self._wanted] for name in self._names}


class EpisodeTally:
    """Statistics of each episode up to its end."""

    def __init__(self, contract: PolicyContract, count: int) -> None:
        """Prepare for `count` episodes."""
        joints = len(contract.robot.joints)
        self._limits = _Limits(contract)
        self.running = np.ones(count, bool)
        self._judged, self._succeeded = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._held, self._held_of = np.zeros(count), np.zeros(count)
        self._steps = np.zeros(count, np.int64)
        self._guard_state, self._guard_reasons = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._guard_step, self._broken_step = np.full(count, -1), np.full(count, -1)
        self._excess = np.zeros(count)
        self._broken = np.zeros(count, np.int64)
        self._usage = np.zeros((3, count, joints))
        self._saturated = np.zeros(count)
        self._early = np.full((count, joints), np.nan)

    def note_early(self, env: Environment) -> None:
        """Record the joint positions of the running episodes."""
        self._early[self.running] = env.view.joint_pos[self.running]

    def note_held(self, held: Bools) -> None:
        """Count whether the success condition holds, shape (n,)."""
        self._held += held & self.running
        self._held_of += self.running

    def add(self, step: int, env: Environment, guarded: GuardResult, after: StepResult, late: Bools) -> None:
        """Count one control period."""
        running = self.running
        self._judged += after.judged & running
        self._succeeded += after.succeeded & running
        self._steps += running
        self._guard_state = np.where(running, np.maximum(self._guard_state, guarded.state), self._guard_state)
        # A late command is not the policy's fault: the guard repeats the last one, as designed.
        acted = guarded.intervened & running & ~(late & (guarded.state == 0))
        self._excess = np.where(acted, np.maximum(self._excess, guarded.excess), self._excess)
        self._guard_reasons[acted] |= guarded.reasons[acted].astype(np.int64)
        self._guard_step[acted & (self._guard_step < 0)] = step
        joint_pos, joint_vel = _state_reached(env, after)
        usage, saturated, broken = self._limits.judge(joint_pos, joint_vel, guarded.targets)
        np.fmax(self._usage, usage, out=self._usage, where=running[None, :, None])
        self._saturated += saturated & running
        self._broken |= np.where(running, broken, 0)
        self._broken_step[(broken > 0) & running & (self._broken_step < 0)] = step
        self.running = running & ~after.done

    def result(self, worlds: EpisodeWorlds, visits: dict[str, Array], late: Array) -> BatchResult:
        """Return the statistics of all episodes."""
        diverged = {(episode.world, episode.episode_seed) for episode in worlds.env.diverged_episodes}
        steps = np.maximum(self._steps, 1)
        undefined = self._limits.undefined
        return BatchResult(
            success=(self._judged > 0) & (self._succeeded == self._judged),
            held=self._held / np.maximum(self._held_of, 1.0),
            length_s=self._steps * worlds.env.step_dt,
            diverged=np.array([pair in diverged for pair in enumerate(worlds.seeds.tolist())]),
            guard_state=self._guard_state,
            guard_reasons=self._guard_reasons,
            guard_step=self._guard_step,
            guard_excess=self._excess,
            broken_limits=self._broken,
            broken_step=self._broken_step,
            pos_usage=np.where(undefined[0], np.nan, self._usage[0]),
            vel_usage=np.where(undefined[1], np.nan, self._usage[1]),
            effort_usage=np.where(undefined[2], np.nan, self._usage[2]),
            saturated=self._saturated / steps,
            values=worlds.values,
            lag_s=worlds.lag_s,
            late=late,
            early_pos=self._early,
            visits=visits,
        )


def _state_reached(env: Environment, after: StepResult) -> tuple[Array, Array]:
    """Return the true joint positions and velocities after a step."""
    joint_pos, joint_vel = env.view.joint_pos.copy(), env.view.joint_vel.copy()
    if after.done.any():
        # Finished worlds have been reset already; the engine keeps their last state.
        engine: Any = env.engine
        position, velocity = joint_columns(engine.model, env.task.contract.robot)
        joint_pos[after.done] = engine.last_qpos[after.done, position]
        joint_vel[after.done] = engine.last_qvel[after.done, velocity]
    return joint_pos, joint_vel


class _Limits:
    """Use of the safety envelope's limits by states and commands."""

    def __init__(self, contract: PolicyContract) -> None:
        joints = contract.safety.joints
        lower = np.array([np.nan if j.position_lower is None else j.position_lower for j in joints])
        upper = np.array([np.nan if j.position_upper is None else j.position_upper for j in joints])
        self._middle, self._half = 0.5 * (lower + upper), 0.5 * (upper - lower)
        self._speed = np.array([np.nan if j.velocity_limit is None else j.velocity_limit for j in joints])
        efforts = np.array([j.effort_limit for j in joints])
        self._terms = [(t, list(contract.robot.joint_index(t.joints))) for t in contract.action.terms]
        driven = [joint for term, index in self._terms if term.kind.startswith("joint_effort") for joint in index]
        self._effort = np.array(
            [efforts[j] if j in driven and efforts[j] > 0.0 else np.nan for j in range(len(joints))]
        )
        self.undefined = np.isnan(np.stack([self._half, self._speed, self._effort]))

    def judge(self, joint_pos: Array, joint_vel: Array, targets: Mapping[str, Array]) -> tuple[Array, Bools, Array]:
        """Return usage of position, speed and effort limits (3, n, J), saturation (n,) and violated limits (n,)."""
        effort = np.zeros_like(joint_pos)
        saturated = np.zeros(len(joint_pos), bool)
        for term, index in self._terms:
            target = targets[term.target_name]
            saturated |= ((target >= np.asarray(term.upper)) | (target <= np.asarray(term.lower))).any(axis=1)
            if term.kind.startswith("joint_effort"):
                effort[:, index] = target
        usage = np.stack(
            [
                np.abs(joint_pos - self._middle) / self._half,
                np.abs(joint_vel) / self._speed,
                np.abs(effort) / self._effort,
            ]
        )
        # The tolerance is for the rounding of a position exactly at its limit.
        over: Array = np.any(usage > 1.0 + 1e-6, axis=2)
        broken = over[0] * POSITION + over[1] * SPEED + over[2] * EFFORT
        return usage, saturated, broken.astype(np.int64)
