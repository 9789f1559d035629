"""The actuators of a file, which an import replaces, and what of them is lost."""

import mujoco
import numpy as np

from physai.sim.robots.importing.decisions import Decisions


def clear_actuators(
    spec: mujoco.MjSpec, model: mujoco.MjModel, decisions: Decisions, instead: str, *, stated: bool
) -> None:
    """Removes all actuators, with what refers to them.

    Args:
        spec: the model; changed in place.
        model: the same, compiled.
        decisions: takes what is removed.
        instead: what replaces them.
        stated: whether they are the file's, and not made from a URDF's effort limits.
    """
    removed = len(spec.actuators)
    if removed and stated:
        decisions.add("actuators", f"{removed} of the file are replaced by {instead}", "--servo none")
        _say_what_is_lost(model, decisions)
    elif removed:
        decisions.add("actuators", f"{instead} for the {removed} joints with an effort limit", "--drive JOINT,…")
    for sensor in [one for one in spec.sensors if "ACTUATOR" in str(one.type)]:
        spec.delete(sensor)
    # Keyframes hold a control per actuator.
    for key in spec.keys:
        key.ctrl, key.act = [], []
    for actuator in list(spec.actuators):
        spec.delete(actuator)


def _say_what_is_lost(model: mujoco.MjModel, decisions: Decisions) -> None:
    """Names time constants, and tendons that drive several joints together."""
    slow: dict[float, list[str]] = {}
    filters = (mujoco.mjtDyn.mjDYN_FILTER, mujoco.mjtDyn.mjDYN_FILTEREXACT, mujoco.mjtDyn.mjDYN_MUSCLE)
    for actuator in range(model.nu):
        name = str(model.actuator(actuator).name) or f"actuator {actuator}"
        if int(model.actuator_dyntype[actuator]) in filters:
            slow.setdefault(float(model.actuator_dynprm[actuator, 0]), []).append(name)
        if int(model.actuator_trntype[actuator]) == mujoco.mjtTrn.mjTRN_TENDON:
            joints = _joints_of(model, int(model.actuator_trnid[actuator, 0]))
            if len(joints) > 1:
                decisions.add(
                    name,
                    f"drove {' and '.join(joints)} together by a tendon; now each moves by itself",
                    f"--drive {joints[0]} --fix {joints[-1]}, or --servo none",
                )
    for constant, names in slow.items():
        listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        decisions.add(
            listed, f"the time constant of {constant:g} s is not kept: servos act at once", "--servo none, or a twin"
        )


def _joints_of(model: mujoco.MjModel, tendon: int) -> list[str]:
    first, count = int(model.tendon_adr[tendon]), int(model.tendon_num[tendon])
    rows = [row for row in range(first, first + count) if int(model.wrap_type[row]) == mujoco.mjtWrap.mjWRAP_JOINT]
    return [str(model.joint(int(model.wrap_objid[row])).name) for row in rows if np.abs(model.wrap_prm[row]) > 0.0]
