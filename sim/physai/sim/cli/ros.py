"""`physai sim ros`: the twin as a robot in ROS 2, on the topics its driver would have."""

from __future__ import annotations

import argparse

from physai.sdk.cli.command import Command
from physai.sim.cli import virtual_robot as rehearse


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    rehearse.add_arguments(parser)
    parser.set_defaults(transport="ros")
    parser.epilog = f"As `physai robot rehearse`, through rclpy; source ROS 2 first.\n\n{parser.epilog}"


command = Command(summary="be the robot of a task in ROS 2", add_arguments=_add_arguments, run=rehearse.run)
"""The verb `sim ros`."""
