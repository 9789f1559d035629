"""Masses of a URDF's links: what the file states, what moves, and what a link that needs mass and has none gets."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement

import mujoco

from physai.sim.robots.importing.decisions import Decisions
from physai.sim.robots.importing.urdf.urdf_joints import link_of, value

LEAST_KG, LEAST_KGM2 = 1e-3, 1e-6
"""Mass and moment of inertia of a link that moves but has none."""

DIFFERENCE = 1e-3
"""Share of the stated mass by which the model's may differ without a word."""


def rigid_part(root: Element, link: str) -> set[str]:
    """Names of a link and of all links below it that fixed joints connect to it."""
    below: dict[str, list[str]] = {}
    for joint in root.findall("joint"):
        if joint.get("type") == "fixed":
            below.setdefault(link_of(joint, "parent"), []).append(link_of(joint, "child"))
    pending, seen = [link], set[str]()
    while pending:
        current = pending.pop()
        if current not in seen:
            seen.add(current)
            pending.extend(below.get(current, ()))
    return seen


def link_masses(root: Element) -> dict[str, float]:
    """Mass of each link [kg]; 0 without <inertial>, NaN if its mass is no number."""
    return {
        link.get("name", ""): 0.0 if link.find("inertial") is None else value(link.find("inertial/mass"), "value")
        for link in root.findall("link")
    }


def moving_mass(root: Element, masses: dict[str, float]) -> float:
    """Sum of the masses of all links that are not fixed to the world [kg]."""
    children = {link_of(joint, "child") for joint in root.findall("joint")}
    still = {part for name in masses if name not in children for part in rigid_part(root, name)}
    return sum(mass for name, mass in masses.items() if name not in still)


def give_mass(root: Element, name: str, why: str, decisions: Decisions) -> None:
    """Give a link a little mass, in place of what it has."""
    link = next(link for link in root.findall("link") if link.get("name") == name)
    for element in link.findall("inertial"):
        link.remove(element)
    inertial = SubElement(link, "inertial")
    SubElement(inertial, "mass", value=f"{LEAST_KG:g}")
    SubElement(inertial, "inertia", dict.fromkeys(("ixx", "iyy", "izz"), f"{LEAST_KGM2:g}"))
    for key in ("ixy", "ixz", "iyz"):
        inertial[-1].set(key, "0")
    decisions.add(name, f"{why}; {LEAST_KG:g} kg and {LEAST_KGM2:g} kg·m² are used", "edit the file")


def note_massless_shapes(root: Element, decisions: Decisions) -> None:
    """Name the links that have collision shapes and no <inertial>, which other programs may give a mass."""
    names = [
        link.get("name", "")
        for link in root.findall("link")
        if link.find("collision") is not None and link.find("inertial") is None
    ]
    if names:
        listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        decisions.add(listed, "collision shapes but no <inertial>: without mass, as URDF defines", "edit the file")


def compare_mass(
    model: mujoco.MjModel, stated_kg: float, decisions: Decisions, *, given: Sequence[str] = (), scaled: bool = False
) -> None:
    """Say whether the mass that moves is the file's.

    Args:
        model: compiled model.
        stated_kg: sum of the masses that the file states of links that move.
        decisions: takes the line.
        given: links that move, have no mass in the file, and got one.
        scaled: whether the file's `<compiler settotalmass>` scales all masses.
    """
    moving = [body for body in range(model.nbody) if model.body_weldid[body] != 0]
    found = float(model.body_mass[moving].sum())
    lacking = ", ".join(given[:4]) + (f" and {len(given) - 4} more" if len(given) > 4 else "")
    also = f"; the file has no mass of {lacking}: {LEAST_KG:g} kg each" if given else ""
    if abs(found - stated_kg) <= DIFFERENCE * stated_kg:
        decisions.add("mass", f"{found:.5g} kg move, as much as in the file{also}", "edit the file" if given else "")
        return
    why = ", scaled by its <compiler settotalmass>" if scaled else also
    decisions.add("mass", f"{found:.5g} kg move; in the file it is {stated_kg:.5g} kg{why}", "see decisions.json")
