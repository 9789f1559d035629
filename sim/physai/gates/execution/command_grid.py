"""Grid of commands: which of those that a policy was trained for it ignores, falls in, or is slow to answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.sdk.contract.policy_contract import PolicyContract
    from physai.sim.policies.evaluate import Policy
    from physai.sim.tasks.task import Task

Floats = np.ndarray[Any, np.dtype[np.float64]]

COMMAND = "velocity_command"
"""Command that is played: forwards, to the left [m/s], turn to the left [rad/s], in the base's frame."""
LEVELS = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Shares of the greatest command of an axis, with the other axes at 0."""
MIXED = 0.5
"""Share of the greatest commands of all axes at once."""
HEADINGS = 2
"""Episodes of a command, each at a heading of its own."""
LENGTH_S, WINDOW_S = 6.0, 3.0
"""Length of an episode, and of its end, over which the velocity is averaged: whole cycles of gaits."""
ANSWER_S = 2.0
"""Time after which the second before shows half of the command, if the policy is not slow."""
FOLLOWED = 0.5
"""Least share of a command that counts as followed."""
AXES = (
    ("walk backwards", "walk forwards", "m/s"),
    ("walk to the right", "walk to the left", "m/s"),
    ("turn right", "turn left", "rad/s"),
)
NONE = "none is ignored, falls or is slow"
"""Finding for a policy that follows all commands."""
_SEED = 0x617D


@dataclass(frozen=True, kw_only=True)
class CommandCell:
    """A command and the answer to it, mean of the episodes that do not fall."""

    command: tuple[float, float, float]
    """Forwards, to the left [m/s], turn to the left [rad/s]."""
    achieved: tuple[float, float, float] | None
    """Mean velocity in the frame of the heading over the last 3 s; None if all episodes fall."""
    falls: int
    """Number of episodes that fall."""
    episodes: int
    ignored: tuple[int, ...]
    """Axes of which less than half is reached: 0 forwards, 1 left, 2 turn."""
    slow: tuple[int, ...]
    """Axes of which at least half is reached, but not within the first 2 s."""


@dataclass(frozen=True, kw_only=True)
class CommandGrid:
    """Answers of a policy to a grid of commands."""

    policy: Path
    fingerprint: str
    cells: tuple[CommandCell, ...]

    @property
    def dead_zones(self) -> tuple[str, ...]:
        """Sentences on what it does not follow; empty if it follows every command in time and on its feet."""
        return tuple(_sentences(self.cells))

    @property
    def text(self) -> str:
        """The sentences, or that there is nothing to say."""
        return "\n".join(self.dead_zones) or NONE

    @property
    def record(self) -> dict[str, Any]:
        """The grid as JSON data."""
        identity = {"policy": str(self.policy), "fingerprint": self.fingerprint, "dead_zones": list(self.dead_zones)}
        return {**identity, "cells": [asdict(cell) for cell in self.cells]}


def command_grid(
    policy: Annotated[Path | str, Option(metavar="POLICY")],
    *,
    model: Path | str | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> CommandGrid:
    """Play a policy that walks in the nominal twin with a grid of commands inside the ranges of its contract.

    Each command is held for 6 s from a start at a random heading, without noise, delays or pushes.

    Args:
        policy: run folder, or exported policy.onnx.
        model: MJCF or URDF file that the policy was trained with, if its run folder does not keep it.
        progress: called with the share of the time played.

    Raises:
        PhysaiError: the policy cannot be read or played, or takes no velocity as a command.
    """
    from physai.sim.policies.onnx import OnnxPolicy
    from physai.sim.policies.resolve import find_origin, find_policy

    path = find_policy(Path(policy))
    task = find_origin(path, robot=None if model is None else str(model)).load()
    return played_grid(OnnxPolicy.load(path), task, path, progress)


def commands_of(contract: PolicyContract) -> list[tuple[float, float, float]]:
    """Return the commands of the grid: zero, each axis alone at several levels, and all at once.

    Raises:
        PhysaiError: the policy takes no velocity as a command.
    """
    field = next((one for one in contract.command.fields if one.name == COMMAND and one.size == len(AXES)), None)
    if field is None:
        raise PhysaiError(
            f"the task {contract.task} has no command {COMMAND} of {len(AXES)} numbers, of which a grid could be played"
        )
    ends = [[end for end in (low, high) if end] for low, high in zip(field.lower, field.upper, strict=True)]
    found = [np.zeros(len(AXES))]
    found += [level * end * np.eye(len(AXES))[axis] for axis, own in enumerate(ends) for end in own for level in LEVELS]
    mixed = np.stack(np.meshgrid(*(own or [0.0] for own in ends), indexing="ij"), axis=-1).reshape(-1, len(AXES))
    found += [MIXED * row for row in mixed if np.count_nonzero(row) > 1]
    kept = [np.clip(row, field.lower, field.upper) for row in found]
    # Of a range without 0, levels below its end are the end.
    return list(dict.fromkeys((float(x), float(y), float(turn)) for x, y, turn in np.array(kept) + 0.0))


def played_grid(
    policy: Policy, task: Task, path: Path, progress: Callable[[float], None] = lambda share: None
) -> CommandGrid:
    """Play the grid; see `command_grid`."""
    from physai.sdk.contract.contract_diff import require_same
    from physai.sim.envs.environment import Environment
    from physai.sim.policies.evaluate import evaluation_seeds
    from physai.sim.policies.ramped import ramped

    require_same(policy.contract, task.contract, left="the policy", right=f"the task {task.name}")
    asked = commands_of(task.contract)
    commands = np.repeat(np.array(asked), HEADINGS, axis=0)
    shown = replace(task, episode_length_s=LENGTH_S, command_interval_s=LENGTH_S)
    env = Environment(shown, len(commands), seed=_SEED, randomise=False)
    player = ramped(policy)
    env.begin_episodes(evaluation_seeds(len(commands), _SEED))
    env.view.commands[COMMAND][...] = commands
    now = env.first_look()
    player.reset(len(commands))
    fallen, poses = np.zeros(len(commands), bool), [_pose(env.view.qpos)]
    for step in range(env.episode_steps):
        now = env.step(player(now.sensors, now.commands))
        fallen |= now.terminated
        # Worlds whose episode ended show the start of another one, in the last step all do.
        poses.append(np.where(now.done[:, None], poses[-1], _pose(env.view.qpos)))
        if now.done.any():
            player.reset_worlds(now.done)
        progress((step + 1) / env.episode_steps)
        if fallen.all():
            break
    cells = tuple(judged(asked, np.array(poses), fallen, env.step_dt))
    return CommandGrid(policy=path, fingerprint=policy.contract.fingerprint, cells=cells)


def _pose(qpos: Any) -> Floats:
    """Place on the floor [m] and heading [rad] of bases, shape (n, 3)."""
    w, x, y, z = (np.asarray(qpos[:, column], np.float64) for column in range(3, 7))
    yaw = np.arctan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
    return np.stack([qpos[:, 0], qpos[:, 1], yaw], axis=1)


def judged(
    asked: Sequence[tuple[float, float, float]], poses: Floats, fallen: Any, step_s: float
) -> Iterator[CommandCell]:
    """Yield the cells of a grid that was played.

    Args:
        asked: commands, each of as many episodes one after the other.
        poses: place on the floor [m] and heading [rad], shape (steps + 1, episodes, 3).
        fallen: whether an episode fell, shape (episodes,).
        step_s: time from a pose to the next [s].
    """
    moved = np.diff(poses, axis=0) / step_s
    moved[:, :, 2] = np.arctan2(np.sin(moved[:, :, 2] * step_s), np.cos(moved[:, :, 2] * step_s)) / step_s
    cos, sin = np.cos(poses[:-1, :, 2]), np.sin(poses[:-1, :, 2])
    along, aside = cos * moved[:, :, 0] + sin * moved[:, :, 1], cos * moved[:, :, 1] - sin * moved[:, :, 0]
    speeds = np.stack([along, aside, moved[:, :, 2]], axis=2)
    late, early = round(WINDOW_S / step_s), round(ANSWER_S / step_s)
    count = len(fallen) // len(asked)
    for number, command in enumerate(asked):
        rows = slice(number * count, (number + 1) * count)
        upright = ~fallen[rows]
        if not upright.any():
            yield CommandCell(command=command, achieved=None, falls=count, episodes=count, ignored=(), slow=())
            continue
        own = speeds[:, rows][:, upright].mean(axis=1)
        # The last step's pose is that of the next episode's start.
        ended, begun = own[-late:-1].mean(axis=0), own[early // 2 : early].mean(axis=0)
        driven = [axis for axis, value in enumerate(command) if value]
        ignored = tuple(axis for axis in driven if ended[axis] / command[axis] < FOLLOWED)
        slow = tuple(axis for axis in driven if axis not in ignored and begun[axis] / command[axis] < FOLLOWED)
        yield CommandCell(
            command=command,
            achieved=(float(ended[0]), float(ended[1]), float(ended[2])),
            falls=int(count - upright.sum()),
            episodes=count,
            ignored=ignored,
            slow=slow,
        )


def _sentences(cells: Sequence[CommandCell]) -> Iterator[str]:
    alone = [cell for cell in cells if np.count_nonzero(cell.command) == 1]
    for axis, (negative, positive, unit) in enumerate(AXES):
        for sign, does in ((1.0, positive), (-1.0, negative)):
            own = sorted(
                (cell for cell in alone if sign * cell.command[axis] > 0.0), key=lambda c: abs(c.command[axis])
            )
            yield from _along(own, axis, does, unit)
    rest = [cell for cell in cells if cell not in alone]
    for what, found in (
        ("falls at", [cell for cell in rest if cell.falls]),
        ("does not follow all of", [cell for cell in rest if cell.ignored]),
        ("is slow to answer", [cell for cell in rest if cell.slow]),
    ):
        if found:
            listed = "; ".join(", ".join(f"{value:.3g}" for value in cell.command) for cell in found)
            yield f"{what} the command{'' if len(found) == 1 else 's'} ({listed}) [m/s, m/s, rad/s]"


def _along(cells: Sequence[CommandCell], axis: int, does: str, unit: str) -> Iterator[str]:
    """Sentences on the cells of a direction, the smallest command first."""

    def values(found: Sequence[CommandCell]) -> str:
        return f"{', '.join(f'{abs(cell.command[axis]):.3g}' for cell in found)} {unit}"

    ignored = [cell for cell in cells if cell.ignored]
    if ignored and ignored == list(cells):
        yield f"does not {does} at all, up to {values(cells[-1:])}"
    elif ignored and ignored == list(cells[: len(ignored)]):
        yield f"does not {does} below {values(cells[len(ignored) :][:1])}"
    elif ignored:
        yield f"does not {does} at {values(ignored)}"
    if falls := [cell for cell in cells if cell.falls]:
        yield f"falls when it is to {does} at {values(falls)}"
    if slow := [cell for cell in cells if cell.slow]:
        yield f"is slow to {does} at {values(slow)}: less than half of it in the first {ANSWER_S:g} s"
