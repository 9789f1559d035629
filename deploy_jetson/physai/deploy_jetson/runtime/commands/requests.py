"""Commands to the runtime that drives this robot, from another process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from physai.deploy_jetson.update.robot_tree import TreeOption, tree_of
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

CONFIRM_S = 3.0
"""Longest wait for the joints to be at rest [s]."""
MAX_EVERY_S = 60.0
_POLL_S = 0.05

Word = Literal[
    "status",
    "activate",
    "deactivate",
    "hold",
    "damp",
    "stop",
    "reset",
    "start",
    "record",
    "heartbeat",
    "shutdown",
]


def ask_for_shadow(
    bundle: Annotated[str | Path, Option(metavar="BUNDLE|off")],
    *,
    tree: TreeOption = None,
) -> dict[str, Any]:
    """Let a second policy compute on the samples of the robot while the first one drives, or end that.

    Args:
        bundle: signed bundle for this robot, with or without a verdict; it takes the place of a shadow that runs. `off`
            ends the shadow.
        tree: the robot's tree.

    Returns:
        The runtime's answer; whether the bundle is accepted stands in its status.

    Raises:
        ControlError: no runtime listens, there is no such bundle, or the runtime has no flight recorder.
    """
    from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, SHADOW, tell
    from physai.deploy_jetson.update.slots.health import health_path

    path = health_path(tree_of(tree).existing()).with_name(CONTROL_FILE)
    # The runtime has another working folder.
    what = bundle if bundle == "off" else Path(bundle).absolute()
    return tell(path, f"{SHADOW} {what}")


def tell_runtime(
    word: Annotated[Word, Option(metavar="WORD")],
    *,
    every_s: Annotated[float | None, Option(old=("--every",))] = None,
    tree: TreeOption = None,
    warn: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Send a command to the runtime that drives this robot.

    Args:
        word: status: show the state of the runtime, and why; activate: begin to drive; deactivate: ramp to a safe state
            and send nothing more; hold: brake to a standstill, until reset; damp: brake without stiffness, until reset;
            stop: protective stop, until reset; succeeds once every joint was measured at rest; reset: reset a confirmed
            stop; the robot stays where it is; start: let the policy move the robot again, from standstill; record:
            write a flight recording of the last seconds, as on a fault; heartbeat: report that the operator is present;
            repeat it with `every_s`; shutdown: ramp to a safe state and end.
        every_s: repeat the heartbeat until interrupted, at this period [s].
        tree: the robot's tree.
        warn: receives a warning of the runtime.

    Returns:
        The runtime's answer. After `stop` its status, whose `stopped` is not true if the joints were not measured at
        rest within 3 s: cut the power then.

    Raises:
        ControlError: no runtime listens, or it does not answer.
        PhysaiError: `every_s` is given for another word, or is out of range.
    """
    from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, ControlError, tell
    from physai.deploy_jetson.update.slots.health import health_path

    if every_s is not None and (word != "heartbeat" or not 0.0 < every_s <= MAX_EVERY_S):
        raise PhysaiError(f"`every_s` is for the heartbeat, and up to {MAX_EVERY_S:g} s; got {every_s} for {word}")
    path = health_path(tree_of(tree).existing()).with_name(CONTROL_FILE)
    while every_s is not None:
        tell(path, word)
        time.sleep(every_s)
    try:
        answer = tell(path, word)
        if word != "stop":
            return answer
        if answer.get("warning"):
            warn(str(answer["warning"]))
        deadline_s = time.monotonic() + CONFIRM_S
        status = tell(path, "status")
        # The runtime accepts a stop at once, but the joints take time to come to rest.
        while not status.get("stopped") and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
            status = tell(path, "status")
    except ControlError as error:
        # An operator who presses stop has to know at once that it did not work.
        raise ControlError(f"{error}\nNOT CONFIRMED: cut the power" if word == "stop" else str(error)) from None
    return status
