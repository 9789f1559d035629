"""A URDF as ROS packages have them: meshes by package://, frames as links without mass, motors in transmissions."""

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TEXT = """<robot name="foreign arm">
  <link name="base_footprint"/>
  <joint name="base_joint" type="fixed"><parent link="base_footprint"/><child link="base_link"/></joint>
  <link name="base_link">
    <visual><geometry><mesh filename="package://foreign/meshes/visual/base.dae"/></geometry></visual>
    <collision><geometry><mesh filename="package://foreign/meshes/box.STL"/></geometry></collision>
    <inertial><mass value="3"/><inertia ixx=".02" iyy=".02" izz=".02" ixy="0" ixz="0" iyz="0"/></inertial>
  </link>
  {links}
  <link name="tool0"><inertial><mass value="1e-9"/>
    <inertia ixx="1" iyy="0" izz="0" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="flange" type="fixed"><origin xyz="0 0 0.08" rpy="0 0.3 0"/>
    <parent link="link4"/><child link="tool0"/></joint>
  <link name="left_finger"><inertial><mass value="0.02"/>
    <inertia ixx="1e-5" iyy="1e-5" izz="1e-5" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="finger_joint" type="prismatic"><origin xyz="0.02 0 0.1"/><axis xyz="1 0 0"/>
    <limit lower="0" upper="0.04" effort="20" velocity="0.2"/>
    <parent link="link4"/><child link="left_finger"/></joint>
  <link name="right_finger"><inertial><mass value="0.02"/>
    <inertia ixx="1e-5" iyy="1e-5" izz="1e-5" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="mimicking_joint" type="prismatic"><origin xyz="-0.02 0 0.1"/><axis xyz="-1 0 0"/>
    <mimic joint="finger_joint"/><limit lower="0" upper="0.04" effort="20" velocity="0.2"/>
    <parent link="link4"/><child link="right_finger"/></joint>
  <transmission name="t"><type>transmission_interface/SimpleTransmission</type>
    <joint name="joint1"/><joint name="joint2"/><joint name="joint3"/><joint name="joint4"/>
    <actuator name="m"><mechanicalReduction>100</mechanicalReduction></actuator></transmission>
  <gazebo reference="base_link"><material>Gazebo/Grey</material></gazebo>
</robot>
"""

LINK = """<link name="link{n}">
    <visual><geometry><mesh filename="package://foreign/meshes/box.STL"/></geometry></visual>
    <collision><geometry><mesh filename="package://foreign/meshes/box.STL"/></geometry></collision>
    <inertial><origin xyz="0 0 0.1"/><mass value="{mass}"/>
      <inertia ixx="{i}" iyy="{i}" izz="{i}" ixy="0" ixz="0" iyz="0"/></inertial>
  </link>
  <joint name="joint{n}" type="revolute"><origin xyz="0 0 {height}"/><axis xyz="{axis}"/>
    <parent link="{parent}"/><child link="link{n}"/>
    <limit lower="{lower}" upper="2.5" effort="{effort}" velocity="2"/>
  </joint>"""


def box_stl(half: tuple[float, float, float] = (0.03, 0.03, 0.1)) -> bytes:
    """A binary STL of a box from z = 0 to twice its half height."""
    corners: NDArray[np.float64] = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (0, 2)]) * half
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = [(a, b, c) for a, b, c, _ in quads] + [(a, c, d) for a, _, c, d in quads]
    body = b"".join(
        struct.pack("<12fH", 0.0, 0.0, 0.0, *(float(x) for corner in face for x in corners[corner]), 0)
        for face in faces
    )
    return bytes(80) + struct.pack("<I", len(faces)) + body


def write_foreign_arm(folder: Path) -> Path:
    """Writes the package; returns the URDF."""
    package = folder / "foreign"
    (package / "urdf").mkdir(parents=True)
    (package / "meshes").mkdir()
    (package / "meshes" / "box.STL").write_bytes(box_stl())
    links: list[str] = []
    for n in range(1, 5):
        values = {
            "n": n,
            "parent": "base_link" if n == 1 else f"link{n - 1}",
            "axis": "0 0 1" if n in (1, 4) else "0 1 0",
            "mass": 4.0 / n,
            "i": 0.02 / n,
            "height": 0.21,
            # The elbow's range leaves out 0, as a Panda's does.
            "lower": 0.2 if n == 3 else -2.5,
            "effort": 100.0 / n,
        }
        links.append(LINK.format(**values))
    path = package / "urdf" / "arm.urdf"
    path.write_text(TEXT.format(links="\n  ".join(links)))
    return path
