"""Terms of an observation that the inputs of a bundle are, by their kinds and the names of their elements.

LEAPP states no units and frames. Isaac ROS Deploy (`state_interface_converters.cpp`) gives what joints and the IMU
measure, and twists (`message_to_tensor_converters.cpp`), each in the order of `element_names`.
"""

from typing import Any

from physai.foreign.errors import ForeignPolicyError
from physai.foreign.leapp.document import LeappTensor
from physai.foreign.readers.values import short

POSITION = "state/joint/position"
JOINTS = {POSITION: "joint_pos", "state/joint/velocity": "joint_vel"}
ELEMENTS = {
    "state/body/angular_velocity": ("ang_vel", ("x",), ("y",), ("z",)),
    "state/body/rotation": ("orientation", ("w", "qw"), ("x", "qx"), ("y", "qy"), ("z", "qz")),
    "command/body/velocity": (
        "command",
        ("lin_vel_x", "lin_x", "linear_x"),
        ("lin_vel_y", "lin_y", "linear_y"),
        ("ang_vel_z", "ang_z", "angular_z"),
    ),
}
"""Terms by kind, and names of each of their elements."""
GRAVITY, LINEAR = "projected_gravity_b", "state/body/linear_velocity"
PROPERTIES = {
    POSITION: ("joint_pos",),
    "state/joint/velocity": ("joint_vel",),
    "state/body/angular_velocity": ("root_ang_vel_b", "root_link_ang_vel_b", "root_com_ang_vel_b"),
    "state/body/rotation": ("root_quat_w", "root_link_quat_w"),
}
"""Properties of Isaac Lab that a robot measures, by kind; others are of other frames and bodies."""
AXIS = "__temporal_axis__"


def sensor_term(key: str, tensor: LeappTensor) -> dict[str, Any]:
    """Return the term of an observation that an input is.

    Raises:
        ForeignPolicyError: nothing states which, or the robot does not measure it.
    """
    kind, where = tensor.kind, f"the input {key}"
    reads = tensor.isaaclab_connection.split(":")
    if reads[-1] == GRAVITY and reads[0] == "state":
        if tensor.width != 3 or element_names(where, tensor) not in ([], ["x", "y", "z"]):
            raise ForeignPolicyError(
                f"{where} is gravity with the elements {short(tensor.element_names)}, expected x, y, z"
            )
        return {"of": "gravity"}
    if kind == LINEAR:
        return {"of": "base_lin_vel"}
    if kind not in (*JOINTS, *ELEMENTS):
        known = ", ".join((*JOINTS, *ELEMENTS))
        raise ForeignPolicyError(f"{where} has the kind {kind}, which is not supported: {known}")
    if reads[0] == "state" and kind in PROPERTIES and reads[-1] not in PROPERTIES[kind]:
        raise ForeignPolicyError(f"{where} is {reads[-1]} of Isaac Lab, expected {' or '.join(PROPERTIES[kind])}")
    names = element_names(where, tensor)
    if not names:
        raise ForeignPolicyError(f"{where} ({kind}) has no element_names, which alone tell the order of its elements")
    if kind in JOINTS:
        return {"of": JOINTS[kind], "joints": names}
    of, *elements = ELEMENTS[kind]
    found = [next((index for index, known in enumerate(elements) if name in known), None) for name in names]
    if None in found or len(set(found)) != len(found):
        unknown = names[found.index(None)] if None in found else "an element twice"
        known = ", ".join(known[0] for known in elements)
        raise ForeignPolicyError(f"{where} ({kind}) has {unknown}, expected {known}")
    if kind != "command/body/velocity" and len(found) != len(elements):
        raise ForeignPolicyError(f"{where} ({kind}) has {len(found)} elements, expected {len(elements)}")
    return {"of": of} if found == list(range(len(elements))) else {"of": of, "elements": found}


def element_names(where: str, tensor: LeappTensor) -> list[str]:
    """Return the names of the elements along the last axis; none if the file has none.

    Raises:
        ForeignPolicyError: they are damaged, their number is wrong, or the tensor has several samples.
    """
    axes = tensor.element_names or []
    if AXIS in axes:
        raise ForeignPolicyError(f"{where} has a chunk of samples ({AXIS}), and one is supported")
    if axes and all(isinstance(name, str) for name in axes):
        axes = [axes]
    named = [axis for axis in axes if axis]
    if len(named) > 1 or not all(isinstance(axis, list) for axis in named):
        raise ForeignPolicyError(f"{where} has the element_names {short(axes)}, expected names along one axis")
    names = [str(name) for name in named[0]] if named else []
    if names and len(names) != tensor.width:
        raise ForeignPolicyError(f"{where} has {len(names)} element_names for {tensor.width} elements")
    return names
