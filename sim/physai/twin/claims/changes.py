"""Alternatives that a twin is compared with: itself with one thing changed, by as much as would matter to a policy.

The list follows from the twin's robot and its fitted values, so a verdict knows which comparisons a twin file must
state: a file without one of them has not been compared with it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.sim.robots import Robot
from physai.sim.robots.spec import joint_actuator, joint_ids
from physai.twin.model.credibility import DELAY_CHANGE, LAG_SHIFTS_S, NO_LAG
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import ActuatorResponse, Residuals
from physai.twin.parameters.contact import CONTACT_TIME, RESTITUTION, SLIDING_FRICTION, contact_parameters
from physai.twin.parameters.models import calibration_model
from physai.twin.parameters.parameters import DELAY, catalogue, model_fields
from physai.twin.parameters.servo import is_servo

Array = npt.NDArray[np.float64]
Change = Callable[[Any], None]
"""Changes a compiled model."""

MASS_FACTORS = (1.0 / 1.1, 1.1)
GAIN_FACTORS = (1.0 / 1.1, 1.1)
CONTACT_FACTORS = {"half": 0.5, "twice": 2.0}
CONTACTS = (SLIDING_FRICTION, RESTITUTION, CONTACT_TIME)
"""Changed contact parameters: those which every throw shows."""
AMOUNTS = (0.1, 0.3, 1.0)
"""Shares of a plausible friction or damping that are added to one joint. What is plausible may be many times the real
amount, and not for all joints alike."""
MAX_SINGLE_JOINTS = 12
"""Joints that are changed one by one, from the base on; it bounds the number of replays."""


def _scaled(factor: float, *fields: str) -> Change:
    def change(model: Any) -> None:
        for field in fields:
            getattr(model, field)[:] *= factor

    return change


def _gains(model: Any, factor: float) -> None:
    """Scale the effort of all actuators, or the stiffness of servos."""
    for actuator in (joint_actuator(model, joint) for joint in joint_ids(model)):
        if actuator is not None:
            model.actuator_gainprm[actuator, 0] *= factor
            if is_servo(model, actuator):
                model.actuator_biasprm[actuator, 1] *= factor


def model_changes(model: Any, plausible: Mapping[str, float]) -> Iterator[tuple[str, Change]]:
    """Return the changes that have an effect in a model, by name.

    All forces on a free body without joints are proportional to its mass, so there its mass is not changed.

    Args:
        model: compiled model.
        plausible: by parameter, such as `elbow.friction`, a plausible amount where a model has none.
    """
    for factor in MASS_FACTORS if joint_ids(model) else ():
        yield f"all masses x {factor:.3g}", _scaled(factor, "body_mass", "body_inertia")
    if model.nu:
        for factor in GAIN_FACTORS:
            yield f"all actuator gains x {factor:.3g}", lambda model, factor=factor: _gains(model, factor)
    dofs = {str(model.joint(joint).name): int(model.jnt_dofadr[joint]) for joint in joint_ids(model)}
    for what, field in (("friction", "dof_frictionloss"), ("damping", "dof_damping"), ("armature", "dof_armature")):
        values = np.asarray(getattr(model, field))
        if values.any():
            yield f"half the {what}", _scaled(0.5, field)
        # Twice nothing is nothing, and a model without friction is wrong in the same way as one with too little.
        least = np.zeros_like(values)
        for name, dof in dofs.items():
            least[dof] = plausible.get(f"{name}.{what}", 0.0)
        if (values > 0.0).any() or (least > 0.0).any():
            yield f"twice the {what}", _written({field: np.maximum(2.0 * values, values + least)})
        if field != "dof_armature":
            for name, dof in list(dofs.items())[:MAX_SINGLE_JOINTS]:
                for amount in (share * least[dof] for share in AMOUNTS):
                    # Less would be less than twice.
                    if amount > values[dof]:
                        yield f"{what} of {name} + {amount:.3g}", _added(field, dof, amount)
    yield from _contact_changes(model)


def _added(field: str, dof: int, amount: float) -> Change:
    def change(model: Any) -> None:
        getattr(model, field)[dof] += amount

    return change


def _contact_changes(model: Any) -> Iterator[tuple[str, Change]]:
    """Yield changes of the contacts of all bodies that can touch the world, within the parameters' bounds."""
    parameters = contact_parameters(model)
    for what in CONTACTS:
        mine = [parameter for parameter in parameters if parameter.name.endswith(f".{what}")]
        now = np.array([parameter.prior for parameter in mine])
        bounds = [parameter.lower for parameter in mine], [parameter.upper for parameter in mine]
        for word, factor in CONTACT_FACTORS.items():
            values = np.clip(factor * now, *bounds)
            if not np.array_equal(values, now):
                fields = model_fields(model, [parameter.name for parameter in mine], values[None])
                yield f"{word} the {what.replace('_', ' ')}", _written({name: row[0] for name, row in fields.items()})


def _written(fields: Mapping[str, Array]) -> Change:
    def change(model: Any) -> None:
        for field, values in fields.items():
            getattr(model, field)[:] = values

    return change


def response_changes() -> Iterator[tuple[str, Callable[[ActuatorResponse], ActuatorResponse]]]:
    """Yield the changes of how motors follow their commands, by name."""
    for factor in GAIN_FACTORS:
        yield (
            f"effort per command x {factor:.3g}",
            lambda one, factor=factor: one.model_copy(update={"gain": factor * one.gain}),
        )
    yield NO_LAG, lambda one: one.model_copy(update={"dead_time_s": 0.0, "time_constant_s": 0.0})
    for shift_s in LAG_SHIFTS_S:
        yield f"lag {1e3 * shift_s:+.0f} ms", lambda one, shift_s=shift_s: _later(one, shift_s)


def _later(one: ActuatorResponse, shift_s: float) -> ActuatorResponse:
    """Return a response that lags by more, or by less but not before its command."""
    dead_s = one.dead_time_s + shift_s
    constant_s = max(0.0, one.time_constant_s + min(0.0, dead_s))
    return one.model_copy(update={"dead_time_s": max(0.0, dead_s), "time_constant_s": constant_s})


def plausible_amounts(robot: Robot) -> dict[str, float]:
    """Return a plausible amount of each joint's friction, damping and armature by parameter: the prior's deviation."""
    # Not the twin file's parameters: a file without them would ask for fewer comparisons.
    return {parameter.name: parameter.prior_std for parameter in catalogue(robot, "effort")}


def delay_changes(twin: Twin, model: Any) -> Iterator[tuple[str, float]]:
    """Yield the other delays of a twin whose commands drive the replay [s], by name; none of a twin without one."""
    delay_s = next((parameter.value for parameter in twin.parameters if parameter.name == DELAY), None)
    if delay_s is None:
        # Servos are replayed from their targets, whose delay belongs to every fit.
        if not any(is_servo(model, actuator) for actuator in range(int(model.nu))):
            return
        delay_s = 0.0
    for shift_s in LAG_SHIFTS_S:
        moved_s = max(0.0, delay_s + shift_s)
        yield f"{DELAY_CHANGE} {1e3 * moved_s:.1f} ms", moved_s


def missing_alternatives(twin: Twin, robot: Robot) -> str:
    """Return which comparisons a twin of this robot does not state, or states without being asked for, or "".

    Comparisons that do not follow from the twin's parameters were made with other ones.

    Raises:
        TwinError: the twin is of another robot.
    """
    twin.require_robot(robot)
    model: Any = calibration_model(robot)
    twin.apply(model, twin.values)
    expected = [name for name, _ in model_changes(model, plausible_amounts(robot))]
    expected += [name for name, _ in delay_changes(twin, model)]
    from_commands = [name for name, _ in response_changes()]
    return _missing(twin.residuals, expected, "") or _missing(twin.command_residuals, from_commands, ", from commands")


def _missing(residuals: Residuals | None, expected: list[str], how: str) -> str:
    if residuals is None:
        return ""
    stated = {alternative.name for alternative in residuals.alternatives}
    missing = [name for name in expected if name not in stated]
    if not missing:
        return _unexpected(residuals, expected, how)
    return (
        f"it states no comparison{how} with {len(missing)} of {len(expected)} changed twins, the first of them with "
        f"{missing[0]}; calibrate again"
    )


def _unexpected(residuals: Residuals, expected: list[str], how: str) -> str:
    others = [one.name for one in residuals.alternatives if one.name not in set(expected)]
    if not others:
        return ""
    return (
        f"it states {len(others)} comparisons{how} that its parameters do not ask for, the first of them with "
        f"{others[0]}: its parameters are not those that were compared; calibrate again"
    )
