"""Makes a URDF follow the rules of `urdf_rules` where what its author meant is clear; the rest stays refused."""

import fnmatch
import math
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from numpy.typing import NDArray

from physai.sdk.base.errors import ModelError
from physai.sim.robots.files.urdf_rules import MASS_MAX
from physai.sim.robots.files.xmlfile import XmlFile
from physai.sim.robots.importing.decisions import Decisions
from physai.sim.robots.importing.urdf.masses import give_mass, link_masses, note_massless_shapes, rigid_part
from physai.sim.robots.importing.urdf.urdf_joints import (
    compare_transmissions,
    link_of,
    rename_joints,
    repair_joint,
    settle_mimics,
    value,
)
from physai.sim.robots.importing.urdf.urdf_shapes import repair_shapes

Array = NDArray[np.float64]

_PARTS = ("link", "joint", "material", "mujoco")
"""Elements of a <robot> that say something about its motion or looks."""

DUMMY_KG = 1e-4
"""Links lighter than this carry frames, not mass."""

DENSITY = 1000.0
"""Density of the ball whose inertia a link without one gets [kg/m³]."""

NO_INERTIA = 1e-9
"""Moments of inertia per mass that stand for none [m²]."""

ROUNDING, LIGHT_SHARE, LIGHT_KG = 0.01, 0.02, 0.05
"""Impossible moments of inertia are raised by themselves if that takes less than this share of the largest, if the link
has less than this share of the robot's mass, or if it is as light as a fingertip, which its motor's rotor outweighs."""

SPARE = 1e-5
"""Share by which the two smaller moments of inertia exceed the largest one at least."""


def repair(parsed: XmlFile, decisions: Decisions, *, balance: bool = False, fixed: tuple[str, ...] = ()) -> None:
    """Changes the parsed file in place, and notes each change.

    Args:
        parsed: a URDF file.
        decisions: takes the changes.
        balance: raise moments of inertia that no body can have even where that changes the robot.
        fixed: names or patterns (`gripper_*`) of joints that do not move.

    Raises:
        ModelError: no joint has a name of `fixed`.
    """
    root = parsed.root
    names = [joint.get("name", "") for joint in root.findall("joint")]
    for pattern in fixed:
        if not fnmatch.filter(names, pattern):
            raise ModelError(f"`fix` {pattern}: no joint of that name in {parsed.path}; known: {', '.join(names[:64])}")
    compare_transmissions(root, decisions)
    _drop_other_elements(root, decisions)
    for joint in root.findall("joint"):
        repair_joint(joint, decisions, fixed)
    settle_mimics(root, decisions)
    repair_shapes(root, decisions)
    robot_kg = sum(max(0.0, value(mass, "value")) for mass in root.iterfind("link/inertial/mass"))
    moved = {link_of(joint, "child") for joint in root.findall("joint") if joint.get("type") != "fixed"}
    for link in root.findall("link"):
        _repair_inertia(link, decisions, balance=balance, moved=link.get("name", "") in moved, robot_kg=robot_kg)
    _repair_moving_mass(root, decisions, moved)
    note_massless_shapes(root, decisions)
    rename_joints(root, decisions)


def _drop_other_elements(root: Element, decisions: Decisions) -> None:
    dropped: dict[str, int] = {}
    for element in list(root):
        if element.tag not in _PARTS:
            root.remove(element)
            dropped[element.tag] = dropped.get(element.tag, 0) + 1
    for link in root.findall("link"):
        for element in list(link):
            if element.tag not in ("inertial", "visual", "collision"):
                link.remove(element)
    for tag, count in dropped.items():
        reason = "limits of a URDF are the joint's, so no reduction is applied" if tag == "transmission" else "not used"
        decisions.add(f"<{tag}>", f"{count} left out: {reason}")


def _repair_inertia(link: Element, decisions: Decisions, *, balance: bool, moved: bool, robot_kg: float) -> None:
    inertial = link.find("inertial")
    if inertial is None:
        return
    name, mass = link.get("name", ""), value(inertial.find("mass"), "value")
    if not 0.0 <= mass <= MASS_MAX:
        return
    if mass < DUMMY_KG and not moved:
        link.remove(inertial)
        if mass > 0.0:
            decisions.add(name, f"{mass:g} kg fixed to another link, taken as a frame without mass", "edit the file")
        return
    if mass == 0.0:
        return
    inertia = inertial.find("inertia")
    tensor = np.zeros((3, 3)) if inertia is None else _tensor(inertia)
    if not np.isfinite(tensor).all():
        return
    moments, axes = np.linalg.eigh(tensor)
    if np.abs(moments).max() < NO_INERTIA * mass:
        _set_inertia(inertial, np.eye(3) * _ball(mass))
        decisions.add(name, f"has no moments of inertia; those of a ball of {mass:g} kg are used", "edit the file")
        return
    low, middle, high = (float(moment) for moment in moments)
    lacking = high - low - middle
    # MuJoCo reads what it writes with fewer digits than a flat body, which has A + B = C, can spare.
    # Nothing positive, up to rounding, is left to the rules that follow, which refuse it.
    if high <= 1e-9 * float(np.abs(moments).max()) or (low > 0.0 and lacking < -SPARE * high):
        return
    if low <= 0.0 or lacking > 1e-12 * high:
        light = mass <= max(LIGHT_SHARE * robot_kg, LIGHT_KG)
        if lacking > ROUNDING * high and not light and not balance:
            return
        listed = ", ".join(f"{moment:.3g}" for moment in moments)
        decisions.add(
            name, f"no body has moments of inertia {listed} kg·m²; the smaller ones are raised", "edit the file"
        )
    needed = high * (1.0 + 2.0 * SPARE)
    middle = max(middle, 0.5 * needed)
    _set_inertia(inertial, (axes * [needed - middle, middle, high]) @ axes.T)


def _tensor(inertia: Element) -> Array:
    xx, xy, xz, yy, yz, zz = (value(inertia, key) for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"))
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _ball(mass: float) -> float:
    """Moment of inertia of a solid ball of `DENSITY`: 2/5 m r² with m = 4/3 π r³ ρ."""
    radius = (3.0 * mass / (4.0 * math.pi * DENSITY)) ** (1.0 / 3.0)
    return 0.4 * mass * radius**2


def _set_inertia(inertial: Element, tensor: Array) -> None:
    for element in inertial.findall("inertia"):
        inertial.remove(element)
    places = {"ixx": (0, 0), "ixy": (0, 1), "ixz": (0, 2), "iyy": (1, 1), "iyz": (1, 2), "izz": (2, 2)}
    SubElement(inertial, "inertia", {key: repr(float(tensor[place])) for key, place in places.items()})


def _repair_moving_mass(root: Element, decisions: Decisions, moved: set[str]) -> None:
    """Gives a link that a joint moves, and that has no mass itself or fixed to it, a little."""
    masses = link_masses(root)
    for name in [name for name in masses if name in moved]:
        found = [masses.get(part, 0.0) for part in rigid_part(root, name)]
        # What is no mass is left to the rules that follow, which refuse it.
        if sum(found) <= DUMMY_KG and all(mass >= 0.0 for mass in found):
            give_mass(root, name, "moves but has no mass", decisions)
