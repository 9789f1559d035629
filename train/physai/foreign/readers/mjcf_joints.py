"""The order of an MJCF's joints, for programs that number joints as the model does."""

from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from physai.foreign.errors import ForeignPolicyError
from physai.foreign.readers.values import short
from physai.sdk.base.errors import ModelError
from physai.sim.robots.files.xmlfile import read_xml

MAX_PARTS = 64
"""Greatest number of files that an MJCF may consist of."""
REPEATED = {"replicate", "composite", "flexcomp", "attach", "frame"}
"""Elements of an MJCF that may add joints or hide their order."""


def joint_order(model: Path, root: Path) -> tuple[list[str], set[Path]]:
    """Names of an MJCF's joints in the order of qpos, and the files that were read.

    Args:
        model: the MJCF, which may include others.
        root: folder that they may not leave.

    Raises:
        ForeignPolicyError: a file cannot be read, the order cannot be told, or the motors have another one: programs
            pair both by number.
    """
    whole, parts = _whole(model, root)
    odd = sorted({one.tag for one in whole.iter() if one.tag in REPEATED})
    typed = any("type" in joint.attrib for default in whole.iter("default") for joint in default.iter("joint"))
    if odd or typed:
        what = f"has {', '.join(odd)}" if odd else "has a default type of joints"
        raise ForeignPolicyError(f"{model}: {what}, with which the reader cannot tell the order of its joints")
    joints: list[str] = []
    waiting = [body for body in whole if body.tag == "worldbody"][::-1]
    while waiting:
        body = waiting.pop()
        joints += [joint.get("name", "") for joint in body if joint.tag == "joint" and joint.get("type") != "free"]
        waiting += [child for child in body if child.tag == "body"][::-1]
    motors = [motor.get("joint", "") for group in whole if group.tag == "actuator" for motor in group]
    if not all(joints) or any(joint.get("type") == "ball" for joint in whole.iter("joint")):
        raise ForeignPolicyError(f"{model}: has a joint without a name, or one that is a ball")
    if motors != joints:
        raise ForeignPolicyError(
            f"{model}: its motors are {short(motors)}, its joints {short(joints)}; the program pairs them by number"
        )
    return joints, parts


def _whole(model: Path, root: Path) -> tuple[Element, set[Path]]:
    """The root element of an MJCF, with its includes in place."""
    seen: set[Path] = set()
    top = _part(model, root, seen)
    waiting = [top]
    while waiting:
        element = waiting.pop()
        while any(child.tag == "include" for child in element):
            element[:] = list(_spliced(element, model, root, seen))
        waiting += element
    return top, seen


def _spliced(element: Element, model: Path, root: Path, seen: set[Path]) -> Iterator[Element]:
    for child in element:
        if child.tag == "include":
            # MuJoCo looks for them in the folder of the main file.
            yield from _part(model.parent / child.get("file", ""), root, seen)
        else:
            yield child


def _part(file: Path, root: Path, seen: set[Path]) -> Element:
    path = file.resolve()
    if not path.is_relative_to(root) or path in seen or len(seen) >= MAX_PARTS:
        raise ForeignPolicyError(
            f"{file}: outside the repository, included twice, or one of more than {MAX_PARTS} files"
        )
    seen.add(path)
    try:
        return read_xml(path).root
    except ModelError as error:
        raise ForeignPolicyError(str(error)) from None
