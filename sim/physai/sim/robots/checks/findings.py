"""Findings about a robot."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that the user should know."""

    severe: bool
    """Whether the robot is not fit to be trained on."""
    about: str
    """Joint or part."""
    text: str
    next_step: str = ""
