"""Shapes of a URDF that no simulation takes: of unknown kind, or without a size."""

import math
from xml.etree.ElementTree import Element

from physai.sim.robots.importing.decisions import Decisions

_SIZES = {"box": {"size": 3}, "sphere": {"radius": 1}, "cylinder": {"radius": 1, "length": 1}}
"""Attributes of URDF's shapes with the count of their numbers, all of which are positive [m]."""


def repair_shapes(root: Element, decisions: Decisions) -> None:
    """Removes shapes that have no size or are none of URDF's, and writes the scale of a mesh per axis."""
    bad: dict[str, list[str]] = {}
    for link in root.findall("link"):
        for shape in [*link.findall("visual"), *link.findall("collision")]:
            # MuJoCo warns of names that are there twice, and nothing refers to them.
            shape.attrib.pop("name", None)
            problem = _problem(shape)
            if problem:
                link.remove(shape)
                bad.setdefault(problem, []).append(link.get("name", ""))
    for problem, links in bad.items():
        more = f" and {len(links) - 1} more" if len(links) > 1 else ""
        decisions.add(f"{links[0]}{more}", f"a shape is left out: {problem}", "edit the file")


def _problem(shape: Element) -> str:
    """The problem of a shape; empty if there is none."""
    geometry = shape.find("geometry")
    kinds = [] if geometry is None else list(geometry)
    if not kinds:
        return "it has no <geometry>"
    kind = kinds[0]
    if kind.tag == "mesh":
        return _mesh_problem(kind)
    if kind.tag not in _SIZES:
        return f"<{kind.tag}> is none of box, cylinder, sphere and mesh"
    for key, count in _SIZES[kind.tag].items():
        numbers = _numbers(kind.get(key, ""))
        if len(numbers) != count or not all(number > 0.0 for number in numbers):
            return f"<{kind.tag} {key}={kind.get(key, '')!r}>; expected {count} positive number{'s' * (count > 1)}"
    return ""


def _mesh_problem(mesh: Element) -> str:
    if not mesh.get("filename"):
        return "<mesh> without a filename"
    if mesh.get("scale") is None:
        return ""
    numbers = _numbers(mesh.get("scale", ""))
    if len(numbers) == 1:
        mesh.set("scale", " ".join(3 * [repr(numbers[0])]))
        numbers = 3 * numbers
    if len(numbers) != 3 or not all(math.isfinite(number) and number for number in numbers):
        return f"<mesh scale={mesh.get('scale')!r}>; expected 3 numbers other than 0"
    return ""


def _numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split()]
    except ValueError:
        return []
