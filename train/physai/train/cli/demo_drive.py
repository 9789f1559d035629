"""The last step of `physai demo`: the installed policy drives a virtual robot in another process, over DDS or UDP."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import table
from physai.train.cli.verb import verb_command

ROBOT_TIME_S = 120.0
"""Longest life of the virtual robot, should this process be killed [s]."""

STOP_S = 10.0


def drive(
    task: str, twin: Path | None, root: Path, seconds: float, *, unsafe_no_verdict: bool = False
) -> dict[str, Any]:
    """Starts the virtual robot and `physai robot run`, and waits for the end.

    Args:
        task: name of the task.
        twin: the robot's calibrated twin; None for its model as it is.
        root: the robot's tree of slots, with an active policy.
        seconds: how long to drive [s].
        unsafe_no_verdict: whether to run what was installed without a valid verdict.

    Returns:
        What the runtime counted (`runtime`) and what the robot did (`robot`).

    Raises:
        PhysaiError: one of the two failed.
    """
    from physai.sim.virtual_robot.transport import own_domain

    # What the demo sends stays on this computer: nothing on the network may move because of it.
    environment = {**os.environ, "ROS_DOMAIN_ID": str(own_domain()), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    # Cyclone DDS has no wheels for every machine; UDP comes with physai.
    over = ["--transport", "dds" if find_spec("cyclonedds") else "udp"]
    options = ["--seconds", str(seconds), *(["--unsafe-no-verdict"] if unsafe_no_verdict else [])]
    measured = [] if twin is None else ["--twin", str(twin)]
    life = ["--parent", str(os.getpid()), "--duration-s", str(ROBOT_TIME_S + seconds)]
    with tempfile.TemporaryFile("w+") as told:
        robot = subprocess.Popen(
            verb_command(["robot", "simulate", task, *over, *measured, *life, "--json"], torch=False),
            stdout=told,
            env=environment,
        )
        try:
            runtime = subprocess.run(
                verb_command(["robot", "run", "--root", str(root), *over, *options, "--json"], torch=False),
                stdout=subprocess.PIPE,
                env=environment,
                text=True,
                check=False,
            )
        finally:
            _stop(robot)
        told.seek(0)
        seen = told.read()
    if runtime.returncode not in (0, 1) or not runtime.stdout:
        raise PhysaiError("`physai robot run` failed; its message is above")
    if robot.returncode or not seen:
        raise PhysaiError("`physai robot simulate` failed; its message is above")
    return {"runtime": json.loads(runtime.stdout), "robot": json.loads(seen)}


def _stop(robot: "subprocess.Popen[bytes]") -> None:
    robot.terminate()
    try:
        robot.wait(STOP_S)
    except subprocess.TimeoutExpired:
        robot.kill()
        robot.wait()


def driven_text(found: Mapping[str, Any]) -> str:
    """The latency table and what the robot did, for a terminal."""
    runtime, robot = found["runtime"], found["robot"]
    stages: Mapping[str, Mapping[str, float]] = runtime["stages_us"]
    rows = [(stage, *(f"{value:.0f}" for value in numbers.values())) for stage, numbers in stages.items()]
    shares = next((tuple(numbers) for numbers in stages.values()), ())
    lines = [table(("stage [µs]", *shares), rows)] if rows else []
    lines.append(
        f"  {runtime['ticks']} ticks, {runtime['missed']} deadlines missed, guard intervened in "
        f"{runtime['interventions']}; the robot obeyed {robot['commands']} commands and met its goal at the end of "
        f"{robot['met']} of {robot['judged']}"
    )
    return "\n".join(lines)
