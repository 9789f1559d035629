"""Cause of a joint that does not reach its target: a contact, its effort limit, or soft gains."""

import mujoco
import numpy as np

from physai.sim.robots.spec import ancestors


def held_by(model: mujoco.MjModel, data: mujoco.MjData, joint: int, actuator: int) -> tuple[str, str]:
    """Cause that keeps a joint from its target after its servo was told to move it, and the way out."""
    moved = int(model.jnt_bodyid[joint])
    for contact in data.contact:
        pair = [int(model.geom_bodyid[geom]) for geom in contact.geom]
        inside = [_is_below(model, body, moved) for body in pair]
        if contact.efc_address >= 0 and inside[0] != inside[1]:
            own, other = (str(model.body(pair[inside.index(side)]).name) for side in (True, False))
            return f": {own} touches {other}", "another home pose, or <exclude> in the model if they do not collide"
    limit = float(np.abs(model.actuator_forcerange[actuator]).max())
    if model.actuator_forcelimited[actuator] and abs(float(data.actuator_force[actuator])) > 0.99 * limit:
        return f" with its whole effort of {limit:g}", "a larger effort limit, if the data sheet has one"
    return "", "more kp"


def _is_below(model: mujoco.MjModel, body: int, root: int) -> bool:
    return root in ancestors(model, body)
