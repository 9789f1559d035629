"""An importer of one's own: a chain of rods, one line each, as URDF."""

from pathlib import Path

from physai.sim import ModelError

LINK = """
<link name="{name}"><inertial><origin xyz="0 0 {half}"/><mass value="{mass}"/>
<inertia ixx="{across}" iyy="{across}" izz="{along}" ixy="0" ixz="0" iyz="0"/></inertial>
<visual><origin xyz="0 0 {half}"/><geometry><cylinder radius="0.02" length="{length}"/></geometry></visual></link>
<joint name="joint_{name}" type="revolute"><parent link="{parent}"/><child link="{name}"/>
<origin xyz="0 0 {offset}"/><axis xyz="0 1 0"/><limit lower="-3" upper="3" effort="{effort}" velocity="10"/></joint>"""


def to_urdf(path: Path) -> str:
    """Text of a URDF from lines `NAME LENGTH_M MASS_KG EFFORT_NM`."""
    links, parent, offset = ['<link name="base"/>'], "base", 0.0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            name, *words = line.split()
            length, mass, effort = map(float, words)
        except ValueError:
            raise ModelError(f"{path}:{number}: {line!r} is no NAME LENGTH_M MASS_KG EFFORT_NM") from None
        across, along = mass * (length**2 / 12 + 0.02**2 / 4), mass * 0.02**2 / 2
        sizes = {"half": length / 2, "length": length, "mass": mass, "across": across, "along": along}
        links.append(LINK.format(name=name, parent=parent, offset=offset, effort=effort, **sizes))
        parent, offset = name, length
    return f'<robot name="{path.stem}">{"".join(links)}</robot>'
