"""Finds an arm's end effector, and marks it with the site that tasks and contracts look for."""

import re
from collections.abc import Iterator
from typing import Any

import mujoco

from physai.sdk.base.errors import ModelError, unknown_name
from physai.sim.robots.importing.decisions import Decisions
from physai.sim.robots.spec import TIP_SITE

_NAMED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(^|_)(tcp|grasp|grasptarget|pinch|grip_site)(_|$)",
        r"(^|_)(ee|eef|end_?effector|tool_?(0|center|frame|link)|gripper_frame)(_|$)",
        r"(^|_)(tool|flange|hand|attachment|gripper|gripper_?link|right_hand|left_hand)(_|$)",
    )
)
"""What manufacturers call the frame at an arm's end, the most telling names first."""

_WHEEL = re.compile(r"wheel|caster|castor", re.IGNORECASE)
_FINGER = re.compile(r"finger|jaw|thumb|knuckle|claw|pad|tip_?[0-9]|spring_link", re.IGNORECASE)


def mark_end_effector(spec: mujoco.MjSpec, decisions: Decisions, chosen: str | None = None) -> None:
    """Adds the site `ee` to the end of the longest arm, unless there is one.

    Args:
        spec: model before it is compiled, so that frames without mass are still there.
        decisions: takes the choice.
        chosen: link, body or site at the end effector; None to look for it.

    Raises:
        UnknownNameError: the model has no such link or site.
        ModelError: a slide or ball joint is between base and chosen link.
    """
    bodies = {body.name: body for body in spec.bodies if body.name not in ("", "world")}
    sites = {site.name: site for site in spec.sites if site.name}
    if chosen is not None:
        if chosen not in bodies and chosen not in sites:
            raise unknown_name("link or site", chosen, tuple(sorted({*bodies, *sites})))
        body = bodies.get(chosen) or sites[chosen].parent
        if not _hinges_only(body):
            raise ModelError(f"`ee` {chosen}: a joint before it is no hinge; contracts compute frames of hinges only")
        _mark(spec, sites.get(chosen), body)
        return
    if TIP_SITE in sites:
        return
    named = [name for name in [*sites, *bodies] if not _FINGER.search(name)]
    by_name = _named(named, bodies, sites)
    body, site, why = by_name or _longest(bodies)
    if body is None:
        decisions.add("end effector", f"none: {_why_none(list(bodies.values()))}", "--ee LINK")
        return
    _mark(spec, site, body)
    others = _as_long(body, list(bodies.values())) + ("" if by_name else _behind_slide(named, bodies))
    decisions.add("end effector", f"{site.name if site else body.name}, {why}{others}", "--ee LINK")


def _why_none(bodies: list[Any]) -> str:
    joints = [joint for body in bodies for joint in body.joints]
    if any(joint.type == mujoco.mjtJoint.mjJNT_FREE for joint in joints):
        return "the base floats, and contracts compute frames of hinges from a fixed one"
    others = [body for body in bodies if len(_joints(body)) >= 2 and not _hinges_only(body)]
    if not others:
        return "no chain of two or more hinges"
    other = _first_slide(others[0])
    return f"joint {other.name or 'without a name'} is no hinge, and contracts compute frames behind hinges only"


def _behind_slide(names: list[str], bodies: dict[str, Any]) -> str:
    """Names a link that is called an end effector, and was not taken because of a joint before it."""
    for pattern in _NAMED:
        for name in names:
            if name in bodies and pattern.search(name) and not _hinges_only(bodies[name]):
                slide = _first_slide(bodies[name]).name or "without a name"
                return (
                    f"; not {name}, as joint {slide} before it is no hinge, and contracts compute frames of hinges only"
                )
    return ""


def _first_slide(body: Any) -> Any:
    return next(joint for joint in _joints(body) if joint.type != mujoco.mjtJoint.mjJNT_HINGE)


def _as_long(chosen: Any, bodies: list[Any]) -> str:
    """Names the ends of other arms with as many joints as that of a body."""
    joints = _joints(chosen)
    ends: dict[str, str] = {}
    for body in bodies:
        others = _joints(body)
        if len(others) == len(joints) and _is_arm(body) and not _FINGER.search(body.name):
            ends[others[0].name] = body.name  # `_joints` begins with the joint that is nearest to the body
    ends.pop(joints[0].name, None)
    return f"; other arms are as long, to {', '.join(list(ends.values())[:3])}" if ends else ""


def _named(names: list[str], bodies: dict[str, Any], sites: dict[str, Any]) -> tuple[Any, Any, str] | None:
    for pattern in _NAMED:
        found = [
            (name, sites.get(name), bodies.get(name) or sites[name].parent) for name in names if pattern.search(name)
        ]
        found = [(len(_joints(body)), name, site, body) for name, site, body in found if _is_arm(body)]
        if found:
            most = max(count for count, *_ in found)
            _, _, site, body = next(entry for entry in found if entry[0] == most)
            return body, site, "because of its name"
    return None


def _longest(bodies: dict[str, Any]) -> tuple[Any, Any, str]:
    best, count = None, 1
    for body in bodies.values():
        joints = len(_joints(body))
        # Of equally long chains the first, but of links fixed to each other the last.
        extends = best is not None and joints == count and best in _ancestors(body)
        if (joints > count or extends) and _is_arm(body) and not _FINGER.search(body.name):
            best, count = body, joints
    return best, None, f"the last link behind {count} hinges"


def _ancestors(body: Any) -> Iterator[Any]:
    while body is not None and body.name != "world":
        yield body
        body = body.parent


def _joints(body: Any) -> list[Any]:
    return [joint for ancestor in _ancestors(body) for joint in ancestor.joints]


def _hinges_only(body: Any) -> bool:
    return all(joint.type in (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_FREE) for joint in _joints(body))


def _is_arm(body: Any) -> bool:
    joints = _joints(body)
    if any(_WHEEL.search(part.name) for part in (body, *joints)):
        return False
    return len(joints) >= 2 and all(joint.type == mujoco.mjtJoint.mjJNT_HINGE for joint in joints)


def _quat(spec: mujoco.MjSpec, site: Any) -> Any:
    if site.alt.type == mujoco.mjtOrientation.mjORIENTATION_QUAT:
        return site.quat
    compiler = spec.compiler
    return spec.resolve_orientation(degree=bool(compiler.degree), sequence=compiler.eulerseq, orientation=site.alt)


def _mark(spec: mujoco.MjSpec, site: Any, body: Any) -> None:
    for old in [known for known in spec.sites if known.name == TIP_SITE and known is not site]:
        old.name = f"{TIP_SITE[0]}_of_file"
    at: dict[str, Any] = {} if site is None else {"pos": site.pos, "quat": _quat(spec, site)}
    if site is None or site.name != TIP_SITE:
        body.add_site(name=TIP_SITE, size=[0.01, 0.01, 0.01], group=3, **at)
