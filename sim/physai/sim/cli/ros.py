"""`physai sim ros`: the twin as a robot in ROS 2, on the topics its driver would have."""

from __future__ import annotations

import argparse

from physai.sdk.cli.command import CliCommand
from physai.sim.cli import virtual_robot


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    virtual_robot.add_arguments(parser)
    parser.set_defaults(transport="ros")
    parser.epilog = f"As `physai robot simulate`, through rclpy; source ROS 2 first.\n\n{parser.epilog}"


command = CliCommand(summary="be the robot of a task in ROS 2", add_arguments=_add_arguments, run=virtual_robot.run)
"""The verb `sim ros`."""
