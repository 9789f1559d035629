"""A URDF of a robot on two flat feet as others have it: straight legs at zero, mass ahead of them, no floating joint.

36 kg: torso 20, arms 2 · 1, hips 2 · 2 · 0.5, thighs 2 · 3, shanks 2 · 2, ankles 2 · 0.1, feet 2 · 0.9.
"""

from pathlib import Path

TOTAL_KG = 36.0
CENTRE_M = (20 * 0.2 + 2 * 0.2 - 6 * 0.15 - 4 * 0.45 - 0.2 * 0.6 - 1.8 * 0.65) / TOTAL_KG
"""Height of the centre of mass above the hips at zero: 0.0114 m."""
ANKLE_M, SOLE_M = -0.6, -0.67
"""Heights of ankles and soles above the hips at zero [m]."""
TOE_M, HEEL_M, HALF_WIDTH_M = 0.14, -0.06, 0.04
"""Ends of the sole ahead of the ankle, and half of its width [m]."""


def _link(name: str, mass: float, place: str, extra: str = "") -> str:
    moment = 0.01 * mass
    return (
        f'<link name="{name}"><inertial><origin xyz="{place}"/><mass value="{mass}"/><inertia ixx="{moment}" '
        f'iyy="{moment}" izz="{moment}" ixy="0" ixz="0" iyz="0"/></inertial>{extra}</link>'
    )


def _joint(name: str, parent: str, child: str, place: str, axis: str, limits: tuple[float, float, float]) -> str:
    low, high, effort = limits
    return (
        f'<joint name="{name}" type="revolute"><origin xyz="{place}"/><axis xyz="{axis}"/><parent link="{parent}"/>'
        f'<child link="{child}"/><limit lower="{low}" upper="{high}" effort="{effort}" velocity="20"/></joint>'
    )


def _side(side: str, y: float) -> str:
    sole = '<collision><origin xyz="0.04 0 -0.05"/><geometry><box size="0.2 0.08 0.04"/></geometry></collision>'
    return "".join(
        [
            _link(f"{side}_hip_yaw", 0.5, "0 0 0"),
            _joint(f"{side}_yaw", "torso", f"{side}_hip_yaw", f"0 {y} 0", "0 0 1", (-1, 1, 80)),
            _link(f"{side}_hip_roll", 0.5, "0 0 0"),
            _joint(f"{side}_roll", f"{side}_hip_yaw", f"{side}_hip_roll", "0 0 0", "1 0 0", (-0.6, 0.6, 120)),
            _link(f"{side}_thigh", 3.0, "0 0 -0.15"),
            _joint(f"{side}_pitch", f"{side}_hip_roll", f"{side}_thigh", "0 0 0", "0 1 0", (-2, 2, 80)),
            _link(f"{side}_shank", 2.0, "0 0 -0.15"),
            _joint(f"{side}_knee", f"{side}_thigh", f"{side}_shank", "0 0 -0.3", "0 1 0", (0, 2.5, 120)),
            _link(f"{side}_ankle", 0.1, "0 0 0"),
            _joint(f"{side}_flex", f"{side}_shank", f"{side}_ankle", "0 0 -0.3", "0 1 0", (-1, 1, 40)),
            _link(f"{side}_foot", 0.9, "0 0 -0.05", sole),
            _joint(f"{side}_tilt", f"{side}_ankle", f"{side}_foot", "0 0 0", "1 0 0", (-0.4, 0.4, 40)),
            _link(f"{side}_arm", 1.0, "0 0 -0.1"),
            _joint(f"{side}_shoulder", "torso", f"{side}_arm", f"0 {2 * y} 0.3", "0 1 0", (-2, 2, 20)),
        ]
    )


def write_foreign_biped(folder: Path) -> Path:
    """Writes the URDF; returns its path."""
    body = '<collision><origin xyz="0 0 0.2"/><geometry><box size="0.1 0.2 0.3"/></geometry></collision>'
    path = folder / "strider.urdf"
    path.write_text(
        f'<robot name="strider">{_link("torso", 20.0, "0.05 0 0.2", body)}{_side("l", 0.1)}{_side("r", -0.1)}</robot>'
    )
    return path
