"""Demonstrations: what a network saw and what it should have answered, from recordings of a robot.

Each recording is played through the policy's own observation and action terms, so that histories, last commands and
scales are those of training and of the robot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.train.models.numpy_policy import seeded
from physai.train.models.policy_graph import PolicyGraph, State
from physai.twin.logs import RobotLog

Array = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]

EPOCHS, BATCH, LEARNING_RATE = 40, 512, 1e-3
SETTLED = 1e7
"""Samples that the observation statistics count as afterwards."""
BLOCK, HELD_OUT = 50, 10
"""Pairs are held out in blocks of so many, one block of so many: neighbours are too alike."""
MAX_GAP_PERIODS = 3.0
"""Longest pause between two samples of a recording, in control periods: what lies between is interpolated."""
JOINT_FIELDS = ("joint_pos", "joint_vel", "joint_effort")


@dataclass(frozen=True)
class Demonstrations:
    """Pairs to learn from."""

    observations: Tensor
    """What the network saw, not yet normalised, shape (n, observations)."""
    actions: Tensor
    """What it should have answered, shape (n, actions), in [-1, 1]."""
    clipped: float
    """Share of answers for which [-1, 1] was too narrow."""

    def __add__(self, other: "Demonstrations") -> "Demonstrations":
        """Both, in this order."""
        return joined([self, other])


def joined(parts: Sequence[Demonstrations]) -> Demonstrations:
    """All of them, in their order."""
    counts = np.array([len(part.actions) for part in parts], np.float64)
    clipped = float(np.average([part.clipped for part in parts], weights=counts))
    return Demonstrations(
        torch.cat([part.observations for part in parts]), torch.cat([part.actions for part in parts]), clipped
    )


@dataclass(frozen=True, kw_only=True)
class Cloned:
    """Result of learning from recordings."""

    samples: int
    error: float
    """Root mean square difference to the recorded commands, in network outputs (-1 to 1)."""
    held_out_error: float | None
    """The same on what was not learned; None if there was too little to hold out."""
    clipped: float
    """Share of the recorded commands that the policy cannot give."""


def cloned(graph: PolicyGraph, pairs: Demonstrations, *, seed: int) -> Cloned:
    """Teach a new run's actor and observation statistics (behaviour cloning)."""
    fix_statistics(graph, pairs)
    apart = (torch.arange(len(pairs.actions)) // BLOCK) % HELD_OUT == HELD_OUT - 1
    learned, held_out = (
        Demonstrations(pairs.observations[rows], pairs.actions[rows], pairs.clipped) for rows in (~apart, apart)
    )
    error = fit(graph, learned, seed=seed)
    other = error_on(graph, held_out) if len(held_out.actions) else None
    return Cloned(samples=len(learned.actions), error=error, held_out_error=other, clipped=pairs.clipped)


def require_no_memory(graph: PolicyGraph) -> None:
    """Check that a network can learn from single states.

    Raises:
        PhysaiError: it has a memory.
    """
    if int(getattr(graph.actor, "state_size", 0)):
        raise PhysaiError("a network with a memory cannot imitate single states; train with `settings` actor=mlp")


def fix_statistics(graph: PolicyGraph, pairs: Demonstrations) -> None:
    """Take the observation statistics from what is learned; another scaling would be another function."""
    graph.normaliser.update(pairs.observations)
    # From here on they change slowly.
    graph.normaliser.count.fill_(SETTLED)


def fit(graph: PolicyGraph, pairs: Demonstrations, *, seed: int, epochs: int = EPOCHS) -> float:
    """Teaches a feed-forward actor by least squares.

    Args:
        graph: its normaliser has seen the observations.
        pairs: what to learn.
        seed: of the order of the samples.
        epochs: passes over them.

    Returns:
        Root mean square error afterwards, in network outputs.
    """
    generator = seeded(seed)
    inputs, hidden = graph.normaliser(pairs.observations).detach(), pairs.observations[:, :0]
    optimiser: Any = torch.optim.Adam(graph.actor.parameters(), lr=LEARNING_RATE)
    schedule: Any = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        order = torch.randperm(len(inputs), generator=generator)
        for start in range(0, len(inputs), BATCH):
            rows = order[start : start + BATCH]
            loss = (graph.actor(inputs[rows], hidden[rows])[0] - pairs.actions[rows]).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
    return error_on(graph, pairs)


@torch.no_grad()
def error_on(graph: PolicyGraph, pairs: Demonstrations) -> float:
    """Root mean square error of a feed-forward actor, in network outputs."""
    inputs, hidden = graph.normaliser(pairs.observations), pairs.observations[:, :0]
    return float((graph.actor(inputs, hidden)[0] - pairs.actions).square().mean().sqrt())


def action_for(
    graph: PolicyGraph, targets: Mapping[str, Tensor], sensors: State, state: State
) -> tuple[Tensor, Tensor]:
    """The network outputs that give these commands, shape (n, actions): within [-1, 1], and without that limit.

    The outputs of an incremental term are measured from what was commanded last.
    """
    parts = [
        (targets[term.target_name] - graph.action.origin(term, sensors, state)) / torch.tensor(term.scale)
        for term in graph.contract.action.terms
    ]
    wanted = torch.cat(parts, dim=1)
    return wanted.clamp(-1.0, 1.0), wanted


def from_logs(graph: PolicyGraph, logs: Sequence[RobotLog]) -> Demonstrations:
    """Plays recordings through a policy's terms.

    Positions, speeds and efforts are interpolated at the policy's control periods; the command is the most recent one
    at that time, which is taken as the answer to what was measured then. Speeds that were not recorded are backward
    differences of the positions over one control period.

    Args:
        graph: of the policy that shall learn.
        logs: recordings of the contract's robot.

    Returns:
        The pairs of one recording after another.

    Raises:
        PhysaiError: the network has a memory; a recording lacks what the policy sees or commands, has gaps, or is
            shorter than two periods; or the policy takes commands, which recordings do not have.
    """
    contract = graph.contract
    require_no_memory(graph)
    _require_no_commands(contract)
    played = [_at_control_periods(contract, log) for log in logs]
    length = max(len(next(iter(targets.values()))) for _, targets in played)
    state = graph.initial_state(len(logs))
    observations, actions, needed, numbers = list[Tensor](), list[Tensor](), list[Tensor](), list[Tensor]()
    for step in range(length):
        sensors = _stacked([{n: v[min(step, len(v) - 1)] for n, v in one.items()} for one, _ in played])
        targets = _stacked([{n: v[min(step, len(v) - 1)] for n, v in one.items()} for _, one in played])
        recorded = torch.tensor([step < len(next(iter(one.values()))) for _, one in played])
        observation, histories = graph.observe(sensors, {}, state)
        action, wanted = action_for(graph, targets, sensors, state)
        _, memory = graph.command(action, sensors, state)
        state = {**histories, **memory}
        observations.append(observation[recorded])
        actions.append(action[recorded])
        needed.append(wanted[recorded])
        numbers.append(recorded.nonzero().flatten())
    beyond = (torch.cat(needed).abs() > 1.0 + 1e-6).any(dim=1)
    # One recording after another: among many, a block of rows would be a moment, and not a stretch of one of them.
    order = torch.cat(numbers).argsort(stable=True)
    return Demonstrations(torch.cat(observations)[order], torch.cat(actions)[order], float(beyond.double().mean()))


def _require_no_commands(contract: PolicyContract) -> None:
    names = [field.name for field in contract.command.fields]
    if names:
        raise PhysaiError(
            f"the policy takes the command {', '.join(names)}, and recordings do not say what was commanded; imitate a "
            "policy with `teacher`"
        )


def _stacked(rows: Sequence[Mapping[str, Floats]]) -> State:
    return {name: torch.tensor(np.stack([row[name] for row in rows])) for name in rows[0]}


def _at_control_periods(contract: PolicyContract, log: RobotLog) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Sensor fields and joint commands, shape (periods, width) each, float32."""
    robot = contract.robot
    if log.joint_names != robot.joint_names:
        raise PhysaiError(
            f"{log.source}: joints {', '.join(log.joint_names)}; the policy's robot has {robot.joint_names}"
        )
    period = contract.timing.control_dt
    pause = float(np.diff(log.time).max())
    if not pause <= MAX_GAP_PERIODS * period:
        raise PhysaiError(
            f"{log.source}: no sample for {pause:.3g} s, the policy acts every {period:g} s; cut the recording there, "
            f"or record at {1.0 / period:g} Hz"
        )
    times = np.arange(0.0, log.time[-1] + 1e-9, period)
    if len(times) < 2:
        raise PhysaiError(f"{log.source}: lasts {log.time[-1]:g} s, less than two control periods of {period:g} s")
    known = {name: _interpolated(times, log.time, values) for name, values in log.series()}
    if "joint_vel" not in known:
        position = known["joint_pos"]
        known["joint_vel"] = np.diff(position, axis=0, prepend=position[:1]) / np.float32(period)
    return _sensors(contract, log, known), _targets(contract, log, times)


def _interpolated(times: Array, moments: Array, values: Array) -> Floats:
    found = np.empty((len(times), values.shape[1]), np.float32)
    for column in range(values.shape[1]):
        found[:, column] = np.interp(times, moments, values[:, column])
    return found


def _sensors(contract: PolicyContract, log: RobotLog, known: Mapping[str, Floats]) -> dict[str, Floats]:
    used: set[str] = set()
    for term in contract.observation.terms:
        if term.kind == "sensor" and term.source is not None:
            used.add(term.source)
        elif term.kind == "projected_gravity":
            used.add("imu_quat")
    found: dict[str, Floats] = {}
    rows = len(known["joint_pos"])
    for field in contract.robot.sensors:
        values = known.get(field.name) if field.name in JOINT_FIELDS else None
        if values is None and field.name in used:
            raise PhysaiError(
                f"{log.source}: has no {field.name}, which the policy sees; record it, or imitate a policy"
            )
        found[field.name] = np.zeros((rows, field.size), np.float32) if values is None else values
    return found


def _targets(contract: PolicyContract, log: RobotLog, times: Array) -> dict[str, Floats]:
    robot = contract.robot
    latest = np.searchsorted(log.time, times + 1e-9, side="right") - 1
    targets: dict[str, Floats] = {}
    for term in contract.action.terms:
        kind = term.target_name.removesuffix("_target")
        if log.command_kind != kind:
            raise PhysaiError(f"{log.source}: its commands are {log.command_kind}, the policy's are {kind}")
        columns = list(robot.joint_index(term.joints))
        idle = [name for name in term.joints if log.driven and not log.driven[robot.joint_names.index(name)]]
        if idle:
            raise PhysaiError(f"{log.source}: has no commands for {', '.join(idle)}, which the policy drives")
        targets[term.target_name] = log.command[latest][:, columns].astype(np.float32)
    return targets
