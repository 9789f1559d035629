"""Joints of a URDF that are written in a way that no simulation takes: limits, mimics, names."""

import fnmatch
import math
import re
from xml.etree.ElementTree import Element, SubElement

from physai.sim.robots.files.xmlfile import XmlFile
from physai.sim.robots.importing.decisions import Decisions
from physai.sim.robots.importing.names import usable_names

UNLIMITED_RAD = 1e3
"""A range as large as this is written where there is no limit [rad]."""

UNLIMITED_M = 1e3
"""As `UNLIMITED_RAD`, of a prismatic joint, which then reaches this far [m]."""

_EXPRESSION = re.compile(r"\$\([a-z]+ [^)]*\)|\$\{[^}]*\}")

LARGEST_SPEED = 1e4
"""Velocity limits above are written where there is none [rad/s or m/s]."""


def compare_transmissions(root: Element, decisions: Decisions) -> None:
    """Notes the joints that have an effort limit, but no transmission as others do: in some files they are passive."""
    moved = {joint.get("name", "") for joint in root.iterfind("transmission/joint")}
    unmoved = [
        joint.get("name", "")
        for joint in root.findall("joint")
        if moved and joint.get("name") not in moved and joint.find("mimic") is None
        if value(joint.find("limit"), "effort") > 0.0
    ]
    if unmoved:
        text = "an effort limit, but no <transmission> as other joints have: taken as driven"
        decisions.add(", ".join(unmoved[:8]) + ", …" * (len(unmoved) > 8), text, "--drive JOINT,…")


def link_of(joint: Element, tag: str) -> str:
    """The link that a joint names as `parent` or `child`; empty if it names none."""
    end = joint.find(tag)
    return "" if end is None else end.get("link", "")


def value(element: Element | None, key: str) -> float:
    """A number; NaN where there is none, which `urdf_rules` finds if it matters."""
    try:
        return float(element.get(key, "")) if element is not None else math.nan
    except ValueError:
        return math.nan


def refuse_expressions(parsed: XmlFile) -> None:
    """Raises ModelError, with the line, for what xacro would have replaced, as $(find …) and ${…}."""
    for element in parsed.root.iter():
        for key, text in element.attrib.items():
            if found := _EXPRESSION.search(text):
                raise parsed.error(
                    element,
                    f"<{element.tag} {key}={text[:80]!r}> has {found[0][:40]!r}, which xacro replaces; expand it: "
                    "xacro FILE -o robot.urdf",
                )


def repair_joint(joint: Element, decisions: Decisions, fixed: tuple[str, ...]) -> None:
    """Correct one joint of a URDF in place, and fix it if its name matches one of the patterns in `fixed`."""
    name, kind = joint.get("name", ""), joint.get("type", "")
    if kind != "fixed" and any(fnmatch.fnmatchcase(name, pattern) for pattern in fixed):
        _fix(joint)
        decisions.add(name, "does not move, as asked", "leave out --fix")
        return
    if kind == "planar":
        _fix(joint)
        decisions.add(name, "planar joint held still: policies command joints of one degree of freedom")
        return
    if kind not in ("revolute", "prismatic", "continuous"):
        return
    limit = joint.find("limit")
    if limit is None:
        limit = SubElement(joint, "limit")
        if kind != "continuous":
            decisions.add(name, "has no <limit>; see the next lines for what is assumed", "add <limit> to the file")
    for key in ("effort", "velocity"):
        if limit.get(key) is None:
            limit.set(key, "0")
    if value(limit, "velocity") > LARGEST_SPEED:
        decisions.add(name, f"velocity limit {limit.get('velocity')} taken as none", "edit the file")
        limit.set("velocity", "0")
    if kind == "continuous":
        return
    _use_soft_limits(joint, limit, decisions)
    low, high = (0.0 if limit.get(key) is None else value(limit, key) for key in ("lower", "upper"))
    if kind == "revolute" and high - low > UNLIMITED_RAD:
        joint.set("type", "continuous")
        decisions.add(name, f"limits {low:g} and {high:g} rad taken as none", "edit the file")
    elif kind == "prismatic" and high - low > UNLIMITED_M:
        low, high = max(low, -UNLIMITED_M), min(high, UNLIMITED_M)
        limit.set("lower", repr(low))
        limit.set("upper", repr(high))
        decisions.add(name, f"limits so far apart are none; {low:g} and {high:g} m are used", "edit the file")
    elif low == high == 0.0 and kind == "revolute":
        joint.set("type", "continuous")
        decisions.add(name, "lower and upper limit are both 0, taken as not limited", f"--fix {name}, or edit the file")
    elif low == high:
        _fix(joint)
        decisions.add(name, f"lower and upper limit are both {low:g}, so it does not move", "edit the file")


def _use_soft_limits(joint: Element, limit: Element, decisions: Decisions) -> None:
    """Takes the limits of <safety_controller>, which the robot's controller keeps, where they are the narrower ones."""
    safety = joint.find("safety_controller")
    if safety is None:
        return
    low, high = value(safety, "soft_lower_limit"), value(safety, "soft_upper_limit")
    hard_low, hard_high = value(limit, "lower"), value(limit, "upper")
    if not (hard_low <= low < high <= hard_high and (hard_low < low or high < hard_high)):
        return
    limit.set("lower", repr(low))
    limit.set("upper", repr(high))
    unit = "m" if joint.get("type") == "prismatic" else "rad"
    text = f"moves from {low:g} to {high:g} {unit}, its soft limits; the hard ones are {hard_low:g} and {hard_high:g}"
    decisions.add(joint.get("name", ""), text, "delete <safety_controller>")


def _fix(joint: Element) -> None:
    joint.set("type", "fixed")
    for tag in ("limit", "axis", "mimic", "dynamics", "calibration", "safety_controller"):
        for element in joint.findall(tag):
            joint.remove(element)


def settle_mimics(root: Element, decisions: Decisions) -> None:
    """Holds joints still that mimic one that does not move, and frees those that mimic none that there is."""
    joints = {joint.get("name", ""): joint for joint in root.findall("joint")}
    changed = True
    while changed:
        changed = False
        for name, joint in joints.items():
            mimic = joint.find("mimic")
            if mimic is None or joint.get("type") == "fixed":
                continue
            leader = joints.get(mimic.get("joint", ""))
            if leader is None or leader is joint:
                joint.remove(mimic)
                what = "itself" if leader is joint else f"{mimic.get('joint', '')!r}, which the file does not have"
                decisions.add(name, f"mimics {what}, so it moves by itself", "edit the file")
            elif leader.get("type") == "fixed":
                _fix(joint)
                decisions.add(name, f"mimics {leader.get('name')}, which does not move, so it does not either")
            else:
                continue
            changed = True


def rename_joints(root: Element, decisions: Decisions) -> None:
    """Gives joints names that contracts allow."""
    joints = root.findall("joint")
    renamed = usable_names([joint.get("name", "") for joint in joints if joint.get("type") != "fixed"], decisions)
    for joint in joints:
        joint.set("name", renamed.get(joint.get("name", ""), joint.get("name", "")))
        for mimic in joint.findall("mimic"):
            leader = mimic.get("joint", "")
            mimic.set("joint", renamed.get(leader, leader))
