"""Summary of the gates that block a policy."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from physai.gates.judgement import WOULD_PASS
from physai.sdk.evidence.verdict import GateResult, Measurement, Verdict, VerdictOutcome
from physai.sim.policies.resolve import TaskSource
from physai.sim.robots import robot_names
from physai.sim.tasks.registry import BUILT_IN


@dataclass(frozen=True)
class Reasons:
    """The gates behind a verdict that is not a PASS."""

    blocking: tuple[GateResult, ...]
    """Gates that decide the outcome for reasons of their own."""
    waiting: tuple[str, ...]
    """Gates that would pass in a credible twin."""


def reasons(verdict: Verdict) -> Reasons:
    """Return the gates that decide the verdict; none for a PASS."""
    if verdict.outcome is VerdictOutcome.PASS:
        return Reasons((), ())
    deciding = [gate for gate in verdict.gates if gate.outcome is verdict.outcome]
    waiting = tuple(gate.gate for gate in deciding if gate.message.startswith(WOULD_PASS))
    return Reasons(tuple(gate for gate in deciding if gate.gate not in waiting), waiting)


def who_accepts(verdict: Verdict) -> str:
    """Return which robots a PASS is good for, if its evidence is not from a robot; empty otherwise."""
    # A PASS from stand-in evidence still flashes no robot, unless its owner accepts such evidence.
    if not verdict.condition:
        return ""
    return f"to robots that accept this evidence: {', '.join(verdict.foreign_evidence)}; by default none does"


def field_line(verdict: Verdict) -> str:
    """Return the success rate on the robot in one line; empty if no field episodes were given."""
    named = {one.name: one for gate in verdict.gates if gate.gate == "success" for one in gate.measured}
    if "field_episodes" not in named:
        return ""
    rate, alone = named["success_rate.field"], named["success_rate.field_alone"]
    rho, count = named.get("field_correlation"), named["field_episodes"].value
    agree = f"replays agree {_interval('ρ = ', rho)}" if rho else "ρ unknown: robot or replays always did the same"
    text = f"{round(alone.value * count)} of {count:.0f}, {agree}, {_interval('rate ', rate)}"
    if named["field_episodes.effective"].value > count:
        return f"{text}, alone {_interval('', alone)}"
    replays, twin = named["success_rate.replays"].value, named["success_rate.twin"].value
    return f"{text} from the robot alone (replays {replays:.2f}, twin {twin:.2f})"


def shadow_line(verdict: Verdict) -> str:
    """Return the shadow runs of the policy in one line; empty if none were given."""
    named = {one.name: one.value for gate in verdict.gates if gate.gate == "safety" for one in gate.measured}
    if "shadow.ticks" not in named:
        return ""
    greatest = ", ".join(
        f"{name.removeprefix('shadow.greatest.')} up to {value:.3g} from what was sent"
        for name, value in named.items()
        if name.startswith("shadow.greatest.")
    )
    guarded = sum(value for name, value in named.items() if name.startswith("shadow.intervention."))
    beyond = sum(name.startswith("shadow.beyond.") for name in named)
    return (
        f"{named['shadow.ticks']:.0f} ticks after {named['shadow.starts']:.0f} starts; {greatest or 'no output'}; the "
        f"guard would have changed {guarded:.0f} and stopped {named['shadow.stops']:.0f}; {beyond} inputs beyond what "
        "was judged"
    )


def _interval(label: str, one: Measurement) -> str:
    return f"{label}{one.value:.2f} [{one.lower:.2f}, {one.upper:.2f}]"


def replay_command(number: int, folder: Path | None, options: Sequence[str]) -> str:
    """Return the command line that plays a counterexample, to be pasted into a shell.

    Args:
        number: index of the counterexample.
        folder: report folder; None for a placeholder.
        options: of `replay_options`.
    """
    words = ["physai", "play", "--counterexample", str(number), str(folder) if folder else "REPORT", *options]
    return shlex.join(words)


def replay_options(origin: TaskSource) -> tuple[str, ...]:
    """Return the words that name a task and a robot that are not built in, because no file may name them."""
    task = () if origin.task in BUILT_IN else ("--task", origin.task)
    robot = () if origin.robot is None or origin.robot in robot_names() else ("--model", origin.robot)
    return (*task, *robot)
