"""Checks a model from an uploaded package before MuJoCo sees it: nothing that runs code, names a file or multiplies."""

import math
import re
from xml.etree.ElementTree import Element

from physai.sdk.base.errors import ModelError
from physai.sim.robots.files.xmlfile import XmlFile

MAX_EXPANDED = 20_000
"""Greatest number of elements after `<replicate>` was carried out."""

FILE_TAGS = ("mesh", "hfield", "texture")
"""MJCF elements that may name files."""

_TYPES = {"model/stl": ".stl", "model/obj": ".obj", "image/png": ".png"}
"""Suffixes of the media types that MuJoCo writes into `content_type`."""

_REFUSED = {
    "plugin": "it loads native code; remove it",
    "extension": "it loads native code; remove it",
    "attach": "put the other model's bodies into this file, for example with MjSpec.attach and to_xml",
    "composite": "write its bodies one by one",
    "flexcomp": "robots are rigid here; remove it",
    "flex": "robots are rigid here; remove it",
    "deformable": "robots are rigid here; remove it",
    "skin": "it has no effect on the motion; remove it",
}
_URDF_EXTENSION = ("compiler", "option", "size")
"""Elements that a URDF's `<mujoco>` may hold."""

_SOLVER_LOOPS = (
    "iterations",
    "ls_iterations",
    "noslip_iterations",
    "ccd_iterations",
    "sdf_iterations",
    "sdf_initpoints",
)
_USER_VALUES = ("body", "jnt", "geom", "site", "cam", "tendon", "actuator", "sensor")
_LARGEST: dict[str, dict[str, int]] = {
    "hfield": {"nrow": 1024, "ncol": 1024},
    # A cube's six faces lie one below the other.
    "texture": {"width": 2048, "height": 6 * 2048, "nchannel": 4, "gridsize": 64},
    "camera": {"resolution": 2048},
    "numeric": {"size": 500},
    "size": {"nuserdata": 1000, "nkey": 100, "nconmax": 10_000, "njmax": 10_000, "nstack": 10_000_000}
    | {f"nuser_{kind}": 100 for kind in _USER_VALUES},
    "option": dict.fromkeys(_SOLVER_LOOPS, 1000),
    "user": {"dim": 100},
    "contact": {"num": 100},
}
"""Greatest values of attributes that allocate memory or time, by element."""
_LARGEST_ANYWHERE = {"nsample": 1000, "actdim": 100}
_MEMORY = re.compile(r"-1|\d{1,9}[kK]?|\d{1,3}[mM]")
MAX_MEMORY_MIB = 128


def check_elements(origins: dict[Element, XmlFile], root: Element) -> None:
    """Checks all elements of a model; `origins` has the file of each.

    Raises:
        ModelError: an element runs code, embeds another model or a deformable, or asks for too much.
    """
    for element in root.iter():
        reason = _REFUSED.get(element.tag)
        if reason or (element.tag == "model" and "file" in element.attrib):
            reason = reason or _REFUSED["attach"]
            raise origins[element].error(element, f"<{element.tag}> is not allowed in an uploaded robot: {reason}")
        typed = "content_type" in element.attrib and not _is_own_type(element)
        files = [key for key in element.attrib if key.startswith("file") or (typed and key == "content_type")]
        if files and root.tag == "mujoco" and (element.tag not in FILE_TAGS or "content_type" in files):
            raise origins[element].error(element, f"<{element.tag}> may not have {files[0]!r}; remove it")
        _check_numbers(origins[element], element)
    if root.tag == "robot":
        _check_urdf(origins, root)
    if _expanded(origins, root) > MAX_EXPANDED:
        raise ModelError(
            f"{origins[root].path}: more than {MAX_EXPANDED} elements after <replicate>; use smaller counts"
        )


def _is_own_type(element: Element) -> bool:
    """Whether the type that an element states is that of its file's suffix, as MuJoCo writes it."""
    suffix = _TYPES.get(element.get("content_type", ""))
    names = [value.lower() for key, value in element.attrib.items() if key.startswith("file")]
    return suffix is not None and bool(names) and all(name.endswith(suffix) for name in names)


def _check_urdf(origins: dict[Element, XmlFile], root: Element) -> None:
    for element in root.iter("include"):
        raise origins[element].error(element, "a URDF may not include files; put the links into this file")
    for extension in root.iter("mujoco"):
        for element in extension:
            if element.tag not in _URDF_EXTENSION:
                known = ", ".join(_URDF_EXTENSION)
                raise origins[element].error(element, f"<mujoco> in a URDF may hold {known}, not <{element.tag}>")


def _check_numbers(file: XmlFile, element: Element) -> None:
    bounds = _LARGEST_ANYWHERE | _LARGEST.get(element.tag, {})
    for key, value in element.attrib.items():
        limit = bounds.get(key)
        if limit is not None and not _largest(value) <= limit:
            raise file.error(element, f"<{element.tag}> {key}={value[:40]!r} exceeds {limit}")
    memory = element.get("memory") if element.tag == "size" else None
    if memory is not None and not _is_small(memory.strip()):
        raise file.error(element, f"<size> memory={memory[:40]!r}; write at most {MAX_MEMORY_MIB}M, or leave it out")


def _largest(text: str) -> float:
    """Greatest magnitude among the numbers in an attribute; infinite if one cannot be read."""
    try:
        return max((abs(float(token)) for token in text.split()), default=0.0)
    except ValueError:
        return math.inf


def _is_small(memory: str) -> bool:
    if not _MEMORY.fullmatch(memory):
        return False
    unit = {"k": 2**10, "m": 2**20}.get(memory[-1].lower(), 1)
    return int(memory.rstrip("kKmM")) * unit <= MAX_MEMORY_MIB * 2**20


def _expanded(origins: dict[Element, XmlFile], element: Element) -> int:
    """Number of elements once each `<replicate>` has been carried out."""
    below = sum(_expanded(origins, child) for child in element)
    if element.tag != "replicate":
        return 1 + below
    count = element.get("count", "").strip()
    if not re.fullmatch(r"\d{1,9}", count):
        raise origins[element].error(element, f"<replicate> count={count[:40]!r} is no number of copies")
    return 1 + int(count) * below
