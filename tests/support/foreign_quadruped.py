"""A URDF of a quadruped as others have it: straight legs at zero, no floating joint, no IMU, shapes of its own."""

from pathlib import Path

LEG = """
  <link name="{leg}_hip"><inertial><mass value="0.5"/>
    <inertia ixx="5e-4" iyy="5e-4" izz="5e-4" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="{leg}_haa" type="revolute"><origin xyz="{x} {y} 0"/><axis xyz="1 0 0"/>
    <parent link="trunk"/><child link="{leg}_hip"/><limit lower="-0.8" upper="0.8" effort="25" velocity="20"/></joint>
  <link name="{leg}_thigh"><inertial><origin xyz="0 0 -0.1"/><mass value="0.8"/>
    <inertia ixx="4e-3" iyy="4e-3" izz="5e-4" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="{leg}_hfe" type="revolute"><origin xyz="0 {out} 0"/><axis xyz="0 1 0"/>
    <parent link="{leg}_hip"/><child link="{leg}_thigh"/>
    <limit lower="-1.5" upper="3" effort="25" velocity="20"/></joint>
  <link name="{leg}_shank"><inertial><origin xyz="0 0 -0.1"/><mass value="0.2"/>
    <inertia ixx="1e-3" iyy="1e-3" izz="5e-5" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><origin xyz="0 0 -0.2"/><geometry><sphere radius="0.02"/></geometry></collision>
    <visual><origin xyz="0 0 -0.1"/><geometry><cylinder radius="0.012" length="0.2"/></geometry></visual></link>
  <joint name="{leg}_kfe" type="revolute"><origin xyz="0 0 -0.2"/><axis xyz="0 1 0"/>
    <parent link="{leg}_thigh"/><child link="{leg}_shank"/>
    <limit lower="-2.7" upper="-0.2" effort="40" velocity="15"/></joint>"""


def write_foreign_quadruped(folder: Path) -> Path:
    """Writes the URDF; returns its path."""
    legs = "".join(
        LEG.format(leg=leg, x=x, y=y, out=0.08 if y > 0 else -0.08)
        for leg, x, y in (("lf", 0.2, 0.05), ("rf", 0.2, -0.05), ("lh", -0.2, 0.05), ("rh", -0.2, -0.05))
    )
    path = folder / "walker.urdf"
    path.write_text(
        '<robot name="walker"><link name="trunk"><inertial><mass value="7"/>'
        '<inertia ixx="0.03" iyy="0.1" izz="0.11" ixy="0" ixz="0" iyz="0"/></inertial>'
        '<collision><geometry><box size="0.4 0.1 0.1"/></geometry></collision>'
        f'<visual><geometry><box size="0.4 0.1 0.1"/></geometry></visual></link>{legs}</robot>'
    )
    return path
