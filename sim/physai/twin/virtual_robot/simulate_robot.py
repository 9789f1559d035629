"""Run the virtual robot of a task on one of the robot's transports."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.arguments import MAX_SEED, require_choice, require_range
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.twin.virtual_robot.paced_twin import RuntimeTally

MAX_DURATION_S = 86_400.0
MAX_LINGER_S = 60.0


@dataclass(frozen=True, kw_only=True)
class SimulatedRun:
    """Statistics of a virtual robot that ran."""

    task: str
    fingerprint: str
    """Of the task's contract."""
    tally: RuntimeTally
    problems: tuple[str, ...]
    """Problems of the link."""


def simulate_robot(
    task: str,
    *,
    transport: Annotated[str, Option(metavar="NAME")] = "dds",
    link_options: Annotated[Mapping[str, str] | None, Option(flags=("--set",))] = None,
    twin: Annotated[Path | str | None, Option(metavar="TWIN")] = None,
    model: Annotated[str | Path | None, Option(old=("--robot",), metavar="FILE")] = None,
    preset: str | None = None,
    clock: Literal["realtime", "lockstep"] = "realtime",
    duration_s: float | None = None,
    linger_s: float = 0.0,
    seed: int = 0,
    fingerprint: Annotated[str | None, Option(metavar="SHA256")] = None,
    parent: Annotated[int | None, Option(metavar="PID")] = None,
    say: Callable[[str], None] = lambda text: None,
    watch: Callable[[str], None] | None = None,
) -> SimulatedRun:
    """Run the virtual robot of a task on a transport, for the given time or until SIGINT or SIGTERM.

    Signals end it if it runs in the main thread.

    Args:
        task: task name or Python file.
        transport: dds, udp or ros.
        link_options: transport option, such as domain=7 or bind=HOST:PORT; repeatable.
        twin: twin.json of `physai sim calibrate`.
        model: robot to use, for tasks that accept another one.
        preset: variant of the task.
        clock: lockstep: each command advances the simulation by one control period.
        duration_s: time to run [s]. None for until interrupted.
        linger_s: after a signal, keep running while commands still arrive, at most this long [s].
        seed: seed of all random numbers.
        fingerprint: refuse a task whose contract has another fingerprint.
        parent: exit when this is no longer the parent process.
        say: called with a line about the link.
        watch: called with a line about each change, such as commands that stop or a fall; None for no watching.

    Returns:
        Statistics of the run.

    Raises:
        TransportError: the link cannot be opened.
        PhysaiError: the task or the twin cannot be loaded, or an argument is out of range.
    """
    from physai.sdk.transport.registry import open_robot_link
    from physai.sdk.transport.simulation import ServesSimulation
    from physai.twin.virtual_robot.ending import EndCondition
    from physai.twin.virtual_robot.process import VirtualRobot
    from physai.twin.virtual_robot.transport import simulated_robot
    from physai.twin.virtual_robot.watch import TallyWatch

    require_choice("clock", clock, ("realtime", "lockstep"))
    duration_s = MAX_DURATION_S if duration_s is None else duration_s
    if not (math.isfinite(duration_s) and 0.0 < duration_s <= MAX_DURATION_S):
        raise PhysaiError(f"`duration_s` must be above 0 and at most {MAX_DURATION_S:g} s, got {duration_s}")
    if not 0.0 <= linger_s <= MAX_LINGER_S:
        raise PhysaiError(f"`linger_s` must lie in 0 … {MAX_LINGER_S:g} s, got {linger_s}")
    require_range("seed", seed, 0, MAX_SEED)
    link = open_robot_link(transport, link_options or {})
    named = {"task": task, "twin": twin, "robot": model, "preset": preset}
    options = {name: str(value) for name, value in named.items() if value is not None}
    played, subject = simulated_robot(None, options, seed=seed)
    own = played.contract.fingerprint
    if fingerprint not in (None, own):
        raise PhysaiError(f"task {played.name} has the contract {own[:12]}…, not {fingerprint[:12]}…")
    ending = EndCondition(linger_s, parent, catch=threading.current_thread() is threading.main_thread())
    # Signals are handled before the link opens, so that an early Ctrl-C still closes it.
    link.open(played.contract)
    watching: TallyWatch | None = None
    try:
        robot = VirtualRobot(subject, link, clock=clock, seed=seed)
        say(f"{played.contract.robot.name} for {played.name} on {link.name}, {clock}")
        if isinstance(link, ServesSimulation):
            say(link.serve(robot.control))
        if watch is not None:
            watching = TallyWatch(robot.tally, link.problems, watch, robot.control.paused)
        tally = robot.run(duration_s=duration_s, stopped=lambda: ending.due(robot.tally.commands))
        # After lingering the policy has exited first, so a missing peer is expected.
        problems = () if ending.lingered else link.problems()
    finally:
        if watching is not None:
            watching.close()
        link.close()
    return SimulatedRun(task=played.name, fingerprint=own, tally=tally, problems=problems)
