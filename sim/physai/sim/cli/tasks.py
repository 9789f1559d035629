"""`physai tasks`: lists and shows tasks."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from typing import TYPE_CHECKING, Annotated, Any

from physai.sdk.base.terminal import printable, styled, table
from physai.sdk.cli.verb import AsJson, Option, noun, verb

if TYPE_CHECKING:
    from physai.sdk.contract.policy_contract import PolicyContract
    from physai.sdk.contract.terms import CommandField, ObservationTerm
    from physai.sim.tasks.task import Delay, Randomise, SensorModel, Task


@verb(summary="list the built-in tasks (default)")
def _list(*, as_json: AsJson = False) -> int:
    """List the tasks."""
    from physai.sdk.base.errors import TaskError
    from physai.sim.tasks.registry import load_task, task_names
    from physai.sim.teams.team_registry import load_team, team_names

    tasks: list[Task] = []
    for name in task_names():
        try:
            tasks.append(load_task(name))
        except TaskError as error:
            # Of a package that is installed and broken; the others are there.
            print(f"physai: note: {printable(str(error))}", file=sys.stderr)
    if as_json:
        print(json.dumps([_summary(task) for task in tasks], indent=2))
        return 0
    rows = [
        (
            task.name,
            task.contract.robot.name,
            f"{1.0 / task.contract.timing.control_dt:.4g}",
            f"{task.episode_length_s:g}",
            task.summary,
        )
        for task in tasks
    ]
    print(table(("name", "robot", "rate [Hz]", "episode [s]", "what to do"), rows, indent=""))
    print("\nsuccess:")
    print(table(("name", "criterion"), [(task.name, task.success.text) for task in tasks]).partition("\n")[2])
    print("\nteams of robots:")
    print(table(("name", "what to do"), [(name, load_team(name).summary) for name in team_names()]).partition("\n")[2])
    print("\nyour own: physai tasks show FILE.py")
    return 0


def _summary(task: Task) -> dict[str, Any]:
    return {
        "name": task.name,
        "summary": task.summary,
        "robot": task.contract.robot.name,
        "control_rate_hz": 1.0 / task.contract.timing.control_dt,
        "episode_length_s": task.episode_length_s,
        "success": {"criterion": task.success.text, "hold_s": task.success.hold_s},
    }


@verb(summary="print the definition of a task")
def _show(
    task: str,
    *,
    model: Annotated[str | None, Option(old=("--robot",), metavar="FILE")] = None,
    preset: str | None = None,
    as_json: AsJson = False,
) -> int:
    """Print a task.

    Args:
        task: task name, Python file that defines one, or run folder.
        model: robot to use (MJCF, URDF or name), for tasks that accept another one.
        preset: variant of the task, such as realaigym-v2.
    """
    from physai.sim.policies.resolve import named_source

    shown = named_source(task, robot=model, preset=preset).load()
    print(json.dumps(_details(shown), indent=2) if as_json else "\n".join(_sections(shown)))
    return 0


def _details(task: Task) -> dict[str, Any]:
    contract = task.contract
    return {
        **_summary(task),
        "fingerprint": contract.fingerprint,
        "command_interval_s": task.command_interval_s,
        "observation_size": contract.observation_size,
        "action_size": contract.action.size,
        "critic_size": task.critic_size,
        "observation": contract.observation.model_dump(mode="json")["terms"],
        "action": contract.action.model_dump(mode="json")["terms"],
        "commands": contract.command.model_dump(mode="json")["fields"],
        "timing": contract.timing.model_dump(mode="json"),
        "rewards": {name: reward.weight for name, reward in task.rewards.items()},
        "terminations": list(task.terminations),
        "metrics": list(task.metrics),
        "randomisation": [dataclasses.asdict(entry) for entry in task.randomisation],
        "sensors": {name: dataclasses.asdict(model) for name, model in task.sensors.items()},
        "sensor_delay": dataclasses.asdict(task.sensor_delay),
        "action_delay": dataclasses.asdict(task.action_delay),
        "push": dataclasses.asdict(task.push) if task.push else None,
        "training": dict(task.training),
    }


def _sections(task: Task) -> list[str]:
    contract, timing = task.contract, task.contract.timing
    interval = f", a command every {task.command_interval_s:g} s" if task.command_interval_s else ""
    ended_by = ", ".join(task.terminations) or "nothing"
    return [
        f"task         {task.name}: {printable(task.summary)}",
        f"robot        {contract.robot.name}, {len(contract.robot.joints)} joints, {contract.robot.base} base",
        f"success      {printable(task.success.text)}",
        f"episode      {task.episode_length_s:g} s{interval}; ended early by {printable(ended_by)}",
        f"control      {1.0 / timing.control_dt:.4g} Hz, {timing.decimation} physics steps of {timing.physics_dt:g} s, "
        f"deadline {timing.deadline_s:g} s, samples up to {timing.max_observation_age_s:g} s old",
        f"fingerprint  {contract.fingerprint}",
        *_section(f"observation ({contract.observation_size} numbers)", _observation(contract)),
        *_section(f"action ({contract.action.size} numbers)", _action(contract)),
        *_section("commands", _commands(contract)),
        *_section("rewards, per second", _rewards(task)),
        *_section("randomised at each reset", _randomisation(task)),
        *_section("between policy and robot", _disturbances(task)),
        *_section("metrics", "\n".join(f"  {name}" for name in task.metrics)),
        *(_section("training settings of its own", _training(task)) if task.training else []),
    ]


def _section(title: str, body: str) -> list[str]:
    return ["", styled(title, "bold", sys.stdout), printable(body) or "  none"]


def _observation(contract: PolicyContract) -> str:
    rows = [
        (
            term.name,
            f"{contract.term_width(term) * term.history}",
            term.kind,
            _reads(term),
            f"{term.scale:.4g}",
            "-" if term.clip is None else f"±{term.clip:.4g}",
            f"{term.history}",
        )
        for term in contract.observation.terms
    ]
    return table(("term", "size", "kind", "of", "scale", "clip", "periods"), rows)


def _reads(term: ObservationTerm) -> str:
    parts = [part for part in (term.source, term.chain) if part]
    if term.joints is not None:
        parts.append(", ".join(term.joints))
    return " ".join(parts) or "-"


def _action(contract: PolicyContract) -> str:
    rows = [
        (joint, term.kind, f"{scale:.4g}", f"{offset:.4g}", f"[{lower:.6g}, {upper:.6g}]")
        for term in contract.action.terms
        for joint, scale, offset, lower, upper in zip(
            term.joints, term.scale, term.offset, term.lower, term.upper, strict=True
        )
    ]
    return table(("joint", "kind", "scale", "offset", "bounds"), rows)


def _commands(contract: PolicyContract) -> str:
    rows = [
        (field.name, str(index), f"[{lower:.4g}, {upper:.4g}]", _unit(field, index), field.frame or "-")
        for field in contract.command.fields
        for index, (lower, upper) in enumerate(zip(field.lower, field.upper, strict=True))
    ]
    return table(("command", "#", "range", "unit", "frame"), rows)


def _unit(field: CommandField, index: int) -> str:
    """Unit of one element; a field has one unit per element or one for all."""
    units = field.unit.split(", ")
    return (units[index] if len(units) == field.size else field.unit) or "-"


def _rewards(task: Task) -> str:
    return table(("term", "weight"), [(name, f"{reward.weight:+.4g}") for name, reward in task.rewards.items()])


def _training(task: Task) -> str:
    return table(("setting", "value"), [(name, str(value)) for name, value in task.training.items()])


def _randomisation(task: Task) -> str:
    rows = [
        (
            " ".join((entry.field, *entry.together)),
            _elements(task, entry),
            "all" if entry.columns is None else ", ".join(map(str, entry.columns)),
            {"scale": "×", "add": "+", "set": "="}[entry.operation],
            f"[{entry.lower:g}, {entry.upper:g}]",
            "one" if entry.shared else "each",
        )
        for entry in task.randomisation
    ]
    return table(("field", "of", "columns", "", "range", "draw"), rows)


def _elements(task: Task, entry: Randomise) -> str:
    """Names of the rows a randomised field changes, or their numbers if the model does not name them."""
    if entry.rows is None:
        return "all"
    kind = entry.field.partition("_")[0]
    # Degrees of freedom have no names of their own; those of a joint share the joint's.
    rows = [int(task.model.dof_jntid[row]) for row in entry.rows] if kind == "dof" else entry.rows
    # MuJoCo abbreviates joints in its fields, but not in its accessors.
    kind = {"jnt": "joint", "dof": "joint"}.get(kind, kind)
    if kind not in ("body", "geom", "actuator", "joint", "site"):
        return ", ".join(map(str, rows))
    return ", ".join(getattr(task.model, kind)(row).name or str(row) for row in rows)


def _disturbances(task: Task) -> str:
    rows = [(f"sensor {name}", _noise(model)) for name, model in task.sensors.items()]
    rows += [(label, _lag(delay)) for label, delay in (("sensor age", task.sensor_delay), ("lag", task.action_delay))]
    if task.push is not None:
        greatest = max(map(abs, task.push.velocity), default=math.nan)
        rows.append(("push", f"every {task.push.interval_s:g} s, up to {greatest:g} rad/s or m/s"))
    return "\n".join(f"  {label:<20}  {text}" for label, text in rows)


def _noise(model: SensorModel) -> str:
    noise, bias, mean = _range(model.noise_std), _range(model.bias), _range(model.bias_mean)
    parts = [
        f"noise σ {noise}" if noise != "0" or not model.difference_span else "",
        f"constant offset {mean} ± {bias}" if mean != "0" else f"constant offset up to {bias}" if bias != "0" else "",
        f"steps of {model.resolution:g}" if model.resolution else "",
        f"low-pass filter of {1e3 * model.time_constant_s:g} ms" if model.time_constant_s else "",
        f"difference of joint_pos over {model.difference_span}" if model.difference_span else "",
    ]
    return ", ".join(part for part in parts if part)


def _range(values: float | tuple[float, ...]) -> str:
    each = values if isinstance(values, tuple) else (values,)
    return f"{min(each):g}" if min(each) == max(each) else f"{min(each):g} … {max(each):g}"


def _lag(delay: Delay) -> str:
    periods = [f"{delay.lower_periods:g} to {delay.upper_periods:g} control periods"] if delay.upper_periods else []
    seconds = [f"{1e3 * delay.lower_s:g} to {1e3 * delay.upper_s:g} ms"] if delay.upper_s else []
    return " and ".join([*periods, *seconds]) or "none"


command = noun("list or show tasks", {"list": _list, "show": _show}, default="list")
"""The verb `tasks`."""
