"""Origin of evidence: a robot, a simulated stand-in, or another computer.

Recordings, twins, latency evidence and verdicts contain it, covered by their hashes; a robot's settings list the
origins it accepts.
"""

import platform
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.robot import Frozen

OriginKind = Literal["robot", "stand-in", "computer", "unknown"]
"""`robot`: measured on a robot. `stand-in`: from a simulation in place of the robot. `computer`: ticks timed on a
computer that is not a robot's. `unknown`: not stated."""

KINDS: tuple[OriginKind, ...] = ("robot", "stand-in", "computer", "unknown")

RobotName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.\-/]{0,127}$")]
"""A robot model, by the name in its contract, or one unit of it: `ur10e`, `ur10e/cell-3`."""

MAX_MACHINE = 120
_DOUBT: tuple[OriginKind, ...] = ("robot", "computer", "unknown", "stand-in")
"""Kinds from most to least trustworthy."""
_UNPRINTABLE = re.compile(r"[^ -~]+")
_MODEL_FILE = Path("/proc/device-tree/model")
_CPU_FILE = Path("/proc/cpuinfo")


class OriginError(PhysaiError):
    """A stated origin is malformed, or contradicts the evidence."""


class Origin(Frozen):
    """Source of one piece of evidence."""

    kind: OriginKind = "unknown"
    robot: RobotName | None = None
    """Robot it is of, a model or one unit of it; None where that is not known."""
    machine: Annotated[str, Field(min_length=1, max_length=MAX_MACHINE, pattern=r"^[ -~]+$")] | None = None
    """Computer that measured, `machine_text`; None for what does not depend on it."""

    @model_validator(mode="after")
    def _robot_is_named(self) -> Self:
        if self.kind == "robot" and self.robot is None:
            raise ValueError("an origin of kind robot names the robot")
        return self

    @property
    def mark(self) -> str:
        """Text form in recordings: `robot ur10e/cell-3`, `stand-in ur10e`."""
        return self.kind if self.robot is None else f"{self.kind} {self.robot}"

    @classmethod
    def from_mark(cls, text: str, *, source: str) -> Self:
        """Parse `mark`; an empty text is an unknown origin.

        Raises:
            OriginError: the text is malformed.
        """
        kind, _, robot = text.strip().partition(" ")
        try:
            return cls.model_validate({"kind": kind or "unknown", "robot": robot or None})
        except ValueError:
            raise OriginError(
                f"{source}: {text[:80]!r} is no origin; expected `robot MODEL/UNIT`, `stand-in MODEL`, `computer` or "
                "`unknown`"
            ) from None

    def __str__(self) -> str:
        """Return a description for messages."""
        of = "" if self.robot is None else f" {self.robot}"
        words = {
            "robot": f"the robot{of}",
            "stand-in": f"a stand-in for {self.robot or 'a robot'}",
            "computer": "a computer that is no robot",
            "unknown": f"an unknown origin{' of' + of if of else ''}",
        }
        return words[self.kind] + ("" if self.machine is None else f" ({self.machine})")


def combine_origins(origins: Iterable[Origin]) -> Origin:
    """Combine the origins of several pieces of evidence: the least trustworthy kind wins.

    The robot is the unit they share, else the model, else None.
    """
    pieces = list(origins)
    if not pieces:
        return Origin()
    kinds: set[OriginKind] = {origin.kind for origin in pieces}
    kind: OriginKind = max(kinds, key=_DOUBT.index)
    robots = {origin.robot for origin in pieces}
    models = {None if robot is None else model_of(robot) for robot in robots}
    robot = next(iter(robots if len(robots) == 1 else models)) if len(models) == 1 else None
    if kind == "robot" and robot is None:
        return Origin(kind="unknown")
    return Origin(kind=kind, robot=robot)


def model_of(robot: str) -> str:
    """Return the model of a unit: `ur10e` for `ur10e/cell-3`."""
    return robot.partition("/")[0]


def is_unit_of(robot: str, model: str) -> bool:
    """Return whether a robot is of a model: `ur10e` and `ur10e/cell-3` are of `ur10e`."""
    return robot == model or robot.startswith(f"{model}/")


def machine_text() -> str:
    """Return this computer's model: from the device tree on a Jetson, else its CPU."""
    name = ""
    with suppress(OSError, UnicodeDecodeError):
        name = _MODEL_FILE.read_text().strip("\0 \n")
    if not name:
        with suppress(OSError, UnicodeDecodeError):
            lines = _CPU_FILE.read_text().splitlines()
            name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
        name = f"{name or 'processor'} ({platform.machine()})"
    return _UNPRINTABLE.sub(" ", name)[:MAX_MACHINE]


def _known(kinds: tuple[OriginKind, ...]) -> tuple[OriginKind, ...]:
    if len(set(kinds)) != len(kinds):
        raise ValueError(f"a kind of origin occurs twice: {', '.join(kinds)}")
    return kinds


Accepted = Annotated[tuple[OriginKind, ...], Field(max_length=len(KINDS)), AfterValidator(_known)]
"""Accepted kinds of origin."""


def parse_accepted(text: str, *, option: str) -> tuple[OriginKind, ...]:
    """Parse an option such as `stand-in,computer`; `robot` is always included.

    Raises:
        OriginError: a kind is unknown.
    """
    named = [name.strip() for name in text.split(",")]
    for name in named:
        if name not in KINDS:
            raise OriginError(f"{option} {text!r}: {name!r} is none of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind == "robot" or kind in named)
