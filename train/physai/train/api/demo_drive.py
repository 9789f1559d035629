"""The drive of `physai demo`: the installed policy controls a virtual robot in another process, over DDS or UDP."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import table

ROBOT_TIME_S = 120.0
"""Maximum lifetime of the virtual robot beyond the drive, in case this process is killed [s]."""

STOP_S = 10.0


_PROGRAM = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"

_TORCH_FREE = """
import sys
from physai.sdk.cli.main import main
code = main()
if "torch" in sys.modules:
    sys.exit("physai demo: this step imported torch, which the robot does not have")
sys.exit(code)
"""


def verb_command(arguments: Sequence[str], *, torch: bool) -> list[str]:
    """The command line of a verb in this interpreter; with `torch=False` the verb fails if it imports torch."""
    return [sys.executable, "-c", _PROGRAM if torch else _TORCH_FREE, *arguments]


def drive(
    task: str, twin: Path | None, root: Path, seconds: float, *, unsafe_no_verdict: bool = False
) -> dict[str, Any]:
    """Starts the virtual robot and `physai robot run`, and waits for both.

    Args:
        task: name of the task.
        twin: the robot's calibrated twin; None for the nominal model.
        root: the robot's slots, with an active policy.
        seconds: how long to drive [s].
        unsafe_no_verdict: run a policy that was installed without a valid verdict.

    Returns:
        The transport (`transport`), and statistics of the runtime (`runtime`) and of the robot (`robot`).

    Raises:
        PhysaiError: one of the two failed.
    """
    from physai.twin.virtual_robot.transport import own_domain

    # Own domain, localhost only: no robot on the network may move because of the demo.
    environment = {**os.environ, "ROS_DOMAIN_ID": str(own_domain()), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    # Cyclone DDS does not have wheels for every platform; UDP is built in.
    transport = ["--transport", "dds" if find_spec("cyclonedds") else "udp"]
    options = ["--duration-s", str(seconds), *(["--unsafe-no-verdict"] if unsafe_no_verdict else [])]
    twin_option = [] if twin is None else ["--twin", str(twin)]
    lifetime = ["--parent", str(os.getpid()), "--duration-s", str(ROBOT_TIME_S + seconds)]
    with tempfile.TemporaryFile("w+") as output:
        robot = subprocess.Popen(
            verb_command(["robot", "simulate", task, *transport, *twin_option, *lifetime, "--json"], torch=False),
            stdout=output,
            env=environment,
        )
        try:
            runtime = subprocess.run(
                verb_command(["robot", "run", "--root", str(root), *transport, *options, "--json"], torch=False),
                stdout=subprocess.PIPE,
                env=environment,
                text=True,
                check=False,
            )
        finally:
            _stop(robot)
        output.seek(0)
        robot_summary = output.read()
    if runtime.returncode not in (0, 1) or not runtime.stdout:
        raise PhysaiError("`physai robot run` failed; its message is above")
    if robot.returncode or not robot_summary:
        raise PhysaiError("`physai robot simulate` failed; its message is above")
    return {"transport": transport[1], "runtime": json.loads(runtime.stdout), "robot": json.loads(robot_summary)}


def _stop(robot: "subprocess.Popen[bytes]") -> None:
    robot.terminate()
    try:
        robot.wait(STOP_S)
    except subprocess.TimeoutExpired:
        robot.kill()
        robot.wait()


def driven_text(driven: Mapping[str, Any]) -> str:
    """The latency table and the robot's results, for a terminal."""
    runtime, robot = driven["runtime"], driven["robot"]
    stages: Mapping[str, Mapping[str, float]] = runtime["stages_us"]
    rows = [(stage, *(f"{value:.0f}" for value in numbers.values())) for stage, numbers in stages.items()]
    columns = next((tuple(numbers) for numbers in stages.values()), ())
    lines = [table(("stage [µs]", *columns), rows)] if rows else []
    lines.append(
        f"  {runtime['ticks']} ticks, {runtime['missed']} deadlines missed, guard intervened in "
        f"{runtime['interventions']}; the robot received {robot['commands']} commands and reached "
        f"{robot['met']} of {robot['judged']} goals"
    )
    return "\n".join(lines)
