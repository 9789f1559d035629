"""The actuators of a file, which an import replaces, and what of them is lost."""

import mujoco
import numpy as np

from physai.sim.robots.importing.decisions import Decisions

_NUMBERS = (
    *("actdim", "actearly", "actlimited", "armature", "biastype", "ctrllimited", "delay", "dyntype", "forcelimited"),
    *("gaintype", "inheritrange", "interp", "nsample"),
)
_ROWS = ("actrange", "biasprm", "ctrlrange", "damping", "dynprm", "forcerange", "gainprm", "gear", "lengthrange")
"""Attributes of an actuator that a file's defaults may set."""


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
        if gains := sum(bool(np.any(row[1:3])) for row in model.actuator_biasprm):
            decisions.add("gains", f"those that the file states for {gains} joints are replaced", "--servo none")
    elif removed:
        decisions.add("actuators", f"{instead} for the {removed} joints with an effort limit", "--drive JOINT,…")
    for sensor in [one for one in spec.sensors if "ACTUATOR" in str(one.type)]:
        spec.delete(sensor)
    # Keyframes hold a control per actuator.
    for key in spec.keys:
        key.ctrl, key.act = [], []
    for actuator in list(spec.actuators):
        spec.delete(actuator)


def plain_actuator(spec: mujoco.MjSpec, joint: str) -> mujoco.MjsActuator:
    """Add an actuator of a joint, named after it, that takes nothing from the file's defaults.

    A file's `<default><motor gear="100" ctrlrange="-1 1"/></default>` is of its own actuators.
    """
    added, empty = spec.add_actuator(name=joint, target=joint), mujoco.MjSpec()
    plain = empty.add_actuator()
    for name in _NUMBERS:
        setattr(added, name, getattr(plain, name))
    for name in _ROWS:
        setattr(added, name, np.array(getattr(plain, name)))
    added.trntype = mujoco.mjtTrn.mjTRN_JOINT
    return added


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
            follow = followers(model)
            leaders = [joint for joint in joints if joint not in follow]
            drove = f"drove {' and '.join(joints)} together by a tendon"
            if len(leaders) < len(joints) and leaders:
                text = f"{drove}; now {' and '.join(leaders)} gets a servo, and the rest follows by a constraint"
                decisions.add(name, text)
            elif len(leaders) > 1:
                decisions.add(name, f"{drove}; now each moves by itself", f"--fix {leaders[-1]}")
    for constant, names in slow.items():
        listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        text = f"the time constant of {constant:g} s is not kept: servos act at once"
        decisions.add(listed, text, "--servo none, or a twin")


def followers(model: mujoco.MjModel) -> set[str]:
    """Names of joints that follow another one by a constraint."""
    kinds = np.asarray(model.eq_type) == mujoco.mjtEq.mjEQ_JOINT
    coupled = [row for row in np.flatnonzero(kinds) if model.eq_obj2id[row] >= 0]
    return {str(model.joint(int(model.eq_obj1id[row])).name) for row in coupled}


def tendon_pulls(model: mujoco.MjModel) -> list[tuple[int, float]]:
    """Joints that actuators move by tendons, and the greatest effort of each [N·m or N]; infinity without a limit."""
    pulls: list[tuple[int, float]] = []
    for actuator in range(model.nu):
        if int(model.actuator_trntype[actuator]) != mujoco.mjtTrn.mjTRN_TENDON:
            continue
        limited = bool(model.actuator_forcelimited[actuator])
        force = float(np.abs(model.actuator_forcerange[actuator]).max()) if limited else np.inf
        lever = abs(float(model.actuator_gear[actuator, 0]))
        rows = _rows_of(model, int(model.actuator_trnid[actuator, 0]))
        pulls += [(int(model.wrap_objid[row]), force * lever * abs(float(model.wrap_prm[row]))) for row in rows]
    return pulls


def _joints_of(model: mujoco.MjModel, tendon: int) -> list[str]:
    return [str(model.joint(int(model.wrap_objid[row])).name) for row in _rows_of(model, tendon)]


def _rows_of(model: mujoco.MjModel, tendon: int) -> list[int]:
    first, count = int(model.tendon_adr[tendon]), int(model.tendon_num[tendon])
    rows = [row for row in range(first, first + count) if int(model.wrap_type[row]) == mujoco.mjtWrap.mjWRAP_JOINT]
    return [row for row in rows if model.wrap_prm[row] != 0.0]
