"""Validates a URDF file before it is imported.

- Links and joints have unique names, and the joints connect the links to one tree.
- Every joint has a supported type; revolute and prismatic joints have consistent position, effort and velocity limits.
- Whatever a joint moves has mass, and every inertia tensor is physically possible about the centre of mass.
"""

import difflib
import math
from collections import Counter
from collections.abc import Iterable
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from physai.sdk.base.errors import ModelError
from physai.sim.robots.files.xmlfile import XmlFile

JOINT_TYPES = ("revolute", "continuous", "prismatic", "fixed", "floating")
"""Joint types that MuJoCo's importer supports: all of URDF's except "planar"."""

WORLD = "world"
"""Name of the link that represents the world."""

MASS_MIN = 1e-12
"""Smallest mass of a moving body in MuJoCo [kg]."""

MASS_MAX = 1e6
"""Greatest mass of a link [kg]; a large excavator has 1e6 kg."""

AXIS_MIN = 1e-9
"""Shortest axis that has a direction; MuJoCo takes none below 1e-14."""


def checked_joints(parsed: XmlFile) -> dict[str, Element]:
    """Joints of the file by name; adds the link `world` if the file uses it without defining it.

    Raises:
        ModelError: the file violates a rule of this module.
    """
    _define_world(parsed)
    links = _named(parsed, "link")
    joints = _named(parsed, "joint")
    _check_tree(parsed, links, joints)
    for link in links.values():
        _check_inertia(parsed, link)
    for joint in joints.values():
        _check_limit(parsed, joint)
        _check_axis(parsed, joint)
    _check_moving_mass(parsed, links, joints)
    return joints


def _define_world(parsed: XmlFile) -> None:
    # Some published URDF files use `world` as a parent without defining it.
    parents = {parent.get("link") for parent in parsed.root.iterfind("joint/parent")}
    if WORLD in parents and all(link.get("name") != WORLD for link in parsed.root.findall("link")):
        parsed.root.append(Element("link", name=WORLD))


def _named(parsed: XmlFile, tag: str) -> dict[str, Element]:
    elements: dict[str, Element] = {}
    for element in parsed.root.findall(tag):
        name = element.get("name", "")
        if not name:
            raise parsed.error(element, f"<{tag}> without a name")
        if name in elements:
            first = parsed.lines.get(elements[name], 0)
            raise parsed.error(element, f"{tag} {name!r} is already defined in line {first}")
        elements[name] = element
    return elements


def _parent_child(parsed: XmlFile, joint: Element) -> tuple[str, str]:
    ends: list[str] = []
    for tag in ("parent", "child"):
        end = joint.find(tag)
        name = "" if end is None else end.get("link", "")
        if not name:
            raise parsed.error(joint, f"joint {joint.get('name')!r} has no <{tag} link=…>")
        ends.append(name)
    return ends[0], ends[1]


def _check_tree(parsed: XmlFile, links: dict[str, Element], joints: dict[str, Element]) -> None:
    children: Counter[str] = Counter()
    for name, joint in joints.items():
        kind = joint.get("type", "")
        if kind not in JOINT_TYPES:
            raise parsed.error(joint, f"joint {name!r} has type {kind!r}; known: {', '.join(JOINT_TYPES)}")
        ends = _parent_child(parsed, joint)
        for link in ends:
            if link not in links:
                # A child that has a parent already cannot be meant.
                taken = {_parent_child(parsed, one)[1] for one in joints.values()} if link == ends[1] else set[str]()
                near = difflib.get_close_matches(link, [known for known in links if known not in taken], n=1)
                meant = f"did you mean {near[0]!r}?" if near else f'add <link name="{link}"/> or delete the joint'
                raise parsed.error(joint, f"joint {name!r} refers to link {link!r}, which does not exist; {meant}")
        if ends[1] == WORLD and kind != "fixed":
            raise parsed.error(
                joint, f"joint {name!r} moves the link {WORLD!r}, which stands for the ground; rename it"
            )
        children[ends[1]] += 1
        if children[ends[1]] > 1:
            raise parsed.error(joint, f"link {ends[1]!r} has two parents; a URDF is a tree")
    roots = [name for name in links if name not in children]
    if len(roots) > 1:
        raise ModelError(
            f"{parsed.path}: {len(roots)} links without a parent, {', '.join(roots[:8])}; a URDF has one root: connect "
            "them by fixed joints, or delete what is not the robot"
        )
    below = _children(parsed, joints.values())
    reached = {link for root in roots for link in _descendants(root, below)}
    loose = [name for name in links if name not in reached]
    if loose:
        raise parsed.error(links[loose[0]], f"the joints of {', '.join(loose)} form a loop; a URDF is a tree")


def _children(parsed: XmlFile, joints: Iterable[Element]) -> dict[str, list[str]]:
    """Child links of each link."""
    below: dict[str, list[str]] = {}
    for joint in joints:
        parent, child = _parent_child(parsed, joint)
        below.setdefault(parent, []).append(child)
    return below


def _descendants(link: str, below: dict[str, list[str]]) -> list[str]:
    """A link and all its descendants; `below` must not contain a cycle reachable from it."""
    links: list[str] = []
    pending = [link]
    while pending:
        links.append(pending.pop())
        pending.extend(below.get(links[-1], []))
    return links


def _number(parsed: XmlFile, owner: Element, tag: str, key: str, default: float | None = None) -> float:
    """Attribute of the element at path `tag` below a link or joint.

    Raises:
        ModelError: it is missing and has no default, or is not a number.
    """
    element = owner.find(tag)
    value = None if element is None else element.get(key)
    label = f"{owner.tag} {owner.get('name')!r}: <{tag.split('/')[-1]} {key}=…>"
    if value is None:
        if default is None:
            raise parsed.error(owner, f"{label} is missing")
        return default
    try:
        return float(value)
    except ValueError as error:
        raise parsed.error(owner, f"{label} is {value!r}, not a number") from error


def _mass(parsed: XmlFile, link: Element) -> float:
    return 0.0 if link.find("inertial") is None else _number(parsed, link, "inertial/mass", "value")


def _check_inertia(parsed: XmlFile, link: Element) -> None:
    """Check that a link's inertia tensor is physically possible: positive definite, with the triangle inequality."""
    mass = _mass(parsed, link)
    if mass < 0.0:
        raise parsed.error(link, f"link {link.get('name')!r} has mass {mass:g} kg; it must not be negative")
    if not mass <= MASS_MAX:
        raise parsed.error(
            link, f"link {link.get('name')!r} has mass {mass:g} kg, at most {MASS_MAX:g}; check its unit"
        )
    if mass == 0.0:
        return
    xx, yy, zz = (_number(parsed, link, "inertial/inertia", key) for key in ("ixx", "iyy", "izz"))
    xy, xz, yz = (_number(parsed, link, "inertial/inertia", key) for key in ("ixy", "ixz", "iyz"))
    moments: NDArray[np.float64] = np.linalg.eigvalsh(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))
    a, b, c = (float(x) for x in moments)
    principal = f"{parsed.where(link)}: link {link.get('name')!r}: principal moments {a:.6g}, {b:.6g}, {c:.6g} kg·m²"
    if not a > 0.0:
        raise ModelError(f"{principal}: all three must be positive")
    # Tolerance for rounding: a flat body has A + B = C.
    if not a + b >= c * (1.0 - 1e-12):
        raise ModelError(
            f"{principal}: not physical, {a:.6g} + {b:.6g} is less than {c:.6g} (A + B >= C holds for every mass "
            "distribution); URDF inertia is about the centre of mass, in the frame of <inertial><origin>"
        )


def _check_moving_mass(parsed: XmlFile, links: dict[str, Element], joints: dict[str, Element]) -> None:
    """Check that the link moved by each joint has mass, including all links fixed to it."""
    fixed = _children(parsed, (joint for joint in joints.values() if joint.get("type") == "fixed"))
    for name, joint in joints.items():
        if joint.get("type") == "fixed":
            continue
        _, moved = _parent_child(parsed, joint)
        total = sum(_mass(parsed, links[link]) for link in _descendants(moved, fixed))
        if not total > MASS_MIN:
            raise parsed.error(
                links[moved],
                f"link {moved!r} has mass {total:g} kg, but joint {name!r} moves it; "
                "give it an <inertial> with its mass and its inertia about the centre of mass",
            )


def _check_limit(parsed: XmlFile, joint: Element) -> None:
    kind, name = joint.get("type"), joint.get("name")
    limit = joint.find("limit")
    if kind not in ("revolute", "prismatic", "continuous") or (kind == "continuous" and limit is None):
        return
    if limit is None:
        raise parsed.error(joint, f"{kind} joint {name!r} has no <limit lower=… upper=… effort=… velocity=…>")
    for key in ("effort", "velocity"):
        value = _number(parsed, joint, "limit", key)
        if not value >= 0.0:
            raise parsed.error(limit, f"joint {name!r} has {key} limit {value:g}; it must not be negative")
    if kind != "continuous":
        lower, upper = (_number(parsed, joint, "limit", key, 0.0) for key in ("lower", "upper"))
        if not lower < upper:
            raise parsed.error(limit, f"joint {name!r}: lower limit {lower:g} is not below upper {upper:g}")


def _check_axis(parsed: XmlFile, joint: Element) -> None:
    axis = joint.find("axis")
    if axis is None or joint.get("type") not in ("revolute", "prismatic", "continuous"):
        return
    try:
        numbers = [float(number) for number in axis.get("xyz", "1 0 0").split()]
    except ValueError:
        numbers = []
    if len(numbers) != 3 or not math.hypot(*numbers) > AXIS_MIN:
        raise parsed.error(
            axis, f"joint {joint.get('name')!r}: axis {axis.get('xyz')!r} is no direction; give three numbers as 0 0 1"
        )
