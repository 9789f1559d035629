"""Changes of a robot that a drift is named as."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from physai.sim.robots import Robot
from physai.sim.robots.spec import joint_actuator, joint_ids
from physai.twin.parameters.parameters import fitted_bodies

Kind = Literal["mass", "friction", "gain", "drive gain", "lag", "zero"]
"""Mass of a link, friction and damping of a joint, effort of a servo or per measured effort of a motor, effort per
command of a motor, delay of the commands, and zero of an encoder."""

MASS_SHARE = 0.1
"""Unit of a link's mass, as a share of the moving mass, unless the link is heavier."""


@dataclass(frozen=True)
class Change:
    """One way in which a robot may differ from its twin."""

    kind: Kind
    owner: str
    """Link or joint; empty for the lag of all commands."""
    unit: str
    size: float
    """Amount in `unit` of a change of 1."""
    tolerance: float
    """Change that is no drift, whatever the twin's posterior says."""
    step: float
    """Change beyond the tolerance at which a block's bet is full."""

    @property
    def name(self) -> str:
        """Name such as `link2.mass`."""
        return f"{self.owner or 'command'}.{self.kind.replace(' ', '_')}"


_STEPS: dict[Kind, tuple[float, float]] = {
    "mass": (0.06, 0.10),
    "friction": (0.30, 0.35),
    "gain": (0.06, 0.07),
    "drive gain": (0.06, 0.07),
    "lag": (0.3, 0.4),
    "zero": (0.35, 0.40),
}
"""Tolerance and step of each kind, in changes of 1."""
LAG_S = 0.01
ZERO_RAD, ZERO_M = float(np.deg2rad(1.0)), 0.001


def changes_of(robot: Robot, *, motors: bool, lag: bool) -> tuple[Change, ...]:
    """Return the changes of a robot that can be named.

    Args:
        robot: the robot.
        motors: whether motors are driven by measured efforts, which then say how these follow commands.
        lag: whether recordings show when commands take effect.
    """
    model: Any = robot.model
    bodies = fitted_bodies(model)
    moving = float(
        sum(model.body_subtreemass[b] for b in bodies if int(model.body_weldid[model.body_parentid[b]]) == 0)
    )
    carried = bool(np.asarray(model.body_gravcomp).any())
    found: list[Change] = []

    def add(kind: Kind, owner: str, unit: str, size: float) -> None:
        found.append(Change(kind, owner, unit, size, *_STEPS[kind]))

    for body in bodies:
        add("mass", str(model.body(body).name), "kg", max(float(model.body_mass[body]), MASS_SHARE * moving))
    for joint, spec in zip(joint_ids(model), robot.spec.joints, strict=True):
        add("friction", spec.name, "", 1.0)
        if joint_actuator(model, joint) is not None:
            add("gain", spec.name, "", 1.0)
            if motors:
                add("drive gain", spec.name, "", 1.0)
        slide = spec.kind == "prismatic"
        # Where a controller carries the weights, a zero moves nothing that the equations of motion contain.
        if not carried:
            add("zero", spec.name, "m" if slide else "rad", ZERO_M if slide else ZERO_RAD)
    if lag:
        add("lag", "", "s", LAG_S)
    return tuple(found)
