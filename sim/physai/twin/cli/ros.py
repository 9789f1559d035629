"""`physai sim ros`: runs a task's virtual robot on the ROS 2 topics of its real driver."""

from __future__ import annotations

import argparse

from physai.sdk.cli.command import CliCommand
from physai.twin.cli import virtual_robot


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    virtual_robot.add_arguments(parser)
    parser.set_defaults(transport="ros")
    parser.epilog = f"Like `physai robot simulate`, but through rclpy; source ROS 2 first.\n\n{parser.epilog}"


command = CliCommand(
    summary="run the virtual robot of a task in ROS 2", add_arguments=_add_arguments, run=virtual_robot.run
)
"""The verb `sim ros`."""
