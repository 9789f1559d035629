"""Replay the twin with one thing changed, on the recordings that it was not fitted to.

An error below a bound does not make a twin right: where everything errs little, a model with masses 10 % off may stay
below the bound, too. So the held-out recordings choose between the twin and others that differ from it by as much as
would matter to a policy. If they prefer another, the twin is not the model of this robot.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import PhysaiError
from physai.sim.calibration.replay.drive import Responses, is_servo, responses_of
from physai.sim.calibration.replay.replay import ReplayScore, score_windows
from physai.sim.robots import Robot
from physai.sim.robots.spec import joint_actuator, joint_ids
from physai.sim.twin.contact import CONTACT_TIME, RESTITUTION, SLIDING_FRICTION, contact_parameters
from physai.sim.twin.parameters import DELAY, channel, model_fields
from physai.sim.twin.record import ActuatorResponse, Alternative
from physai.sim.twin.twin import Twin
from physai.sim.workers.pool import InProcess, Workers, compute_all
from physai.sim.workers.ray_pool import RayWorkers

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
LAG_SHIFTS_S = (-0.006, 0.006)
"""Later or earlier than the measured lag [s]; never below 0."""


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


@dataclass(frozen=True)
class Replays:
    """What all alternatives of a twin have in common; picklable for workers."""

    robot: Robot
    twin: Twin
    fitted: Any
    """Compiled model of the twin."""
    score: ReplayScore
    """The replay in it."""
    num_threads: int

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the robot's editable model, which MuJoCo cannot pickle and no replay needs."""
        robot = {field.name: getattr(self.robot, field.name) for field in fields(Robot) if field.name != "model_spec"}
        return {**{field.name: getattr(self, field.name) for field in fields(self)}, "robot": robot}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore what `__getstate__` returned, with an empty editable model."""
        self.__dict__.update(state, robot=Robot(**state["robot"], model_spec=mujoco.MjSpec()))

    def alternative(
        self, name: str, model: Any, values: Array, responses: Sequence[Responses] | None = None
    ) -> Alternative:
        """Replay the windows with another model, other values of the channel or other responses."""
        through = channel(self.robot.spec.joint_names, [parameter.name for parameter in self.twin.parameters], values)
        other = score_windows(
            model,
            through,
            self.robot,
            self.score.windows,
            seed=self.score.seed,
            num_threads=self.num_threads,
            responses=responses,
            like=self.score,
        )
        return Alternative(name=name, ratio=other.ratio_to(self.score))


def model_alternatives(
    robot: Robot, twin: Twin, fitted: Any, score: ReplayScore, *, num_threads: int, ray: str | None = None
) -> tuple[Alternative, ...]:
    """Return what replays the windows of a score with another model, or with another delay of a servo's targets.

    Args:
        robot: the recorded robot.
        twin: gives biases and delays.
        fitted: compiled model of the twin.
        score: the replay in it.
        num_threads: threads of the simulation, without Ray.
        ray: cluster that replays, an alternative per processor, see `physai.sim.workers.cluster.connected`; None to
            replay in this process. The result is the same.
    """
    replays = Replays(robot, twin, fitted, score, num_threads if ray is None else 1)
    count = len(_model_changes(replays)) + len(_delays(replays))
    return _replayed(model_alternative, replays, count, ray)


def _model_changes(replays: Replays) -> list[tuple[str, Change]]:
    plausible = {parameter.name: parameter.prior_std for parameter in replays.twin.parameters}
    return list(model_changes(replays.fitted, plausible))


def _delays(replays: Replays) -> list[tuple[str, Array]]:
    """Values of the twin's parameters with a shorter and a longer delay; none if it has no such parameter."""
    names = [parameter.name for parameter in replays.twin.parameters]
    found: list[tuple[str, Array]] = []
    for shift_s in LAG_SHIFTS_S if DELAY in names else ():
        moved = replays.twin.values[None].copy()
        moved[0, names.index(DELAY)] = max(0.0, moved[0, names.index(DELAY)] + shift_s)
        found.append((f"command delay {1e3 * moved[0, names.index(DELAY)]:.1f} ms", moved))
    return found


def model_alternative(replays: Replays, number: int) -> Alternative:
    changes = _model_changes(replays)
    model = copy.copy(replays.fitted)
    if number >= len(changes):
        name, values = _delays(replays)[number - len(changes)]
        return replays.alternative(name, model, values)
    name, change = changes[number]
    change(model)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return replays.alternative(name, model, replays.twin.values[None])


def command_alternatives(
    robot: Robot, twin: Twin, fitted: Any, score: ReplayScore, *, num_threads: int, ray: str | None = None
) -> tuple[Alternative, ...]:
    """Return what replays the windows of a score from commands with another response of the motors; see above."""
    replays = Replays(robot, twin, fitted, score, num_threads if ray is None else 1)
    return _replayed(command_alternative, replays, len(list(_response_changes())), ray)


def command_alternative(replays: Replays, number: int) -> Alternative:
    name, change = list(_response_changes())[number]
    responses = [_each(change, responses_of(replays.twin, log)) for log in replays.score.windows.logs]
    return replays.alternative(name, copy.copy(replays.fitted), replays.twin.values[None], responses)


def _replayed(
    work: Callable[[Replays, int], Alternative], replays: Replays, count: int, ray: str | None
) -> tuple[Alternative, ...]:
    """All alternatives, in their order."""
    if ray is None:
        workers: Workers[int, Alternative] = InProcess(work, replays)
    else:
        workers = RayWorkers(work, replays, ray, most=max(1, count))
    found: dict[int, Alternative] = {}
    for number, result in compute_all(workers, range(count)) if count else ():
        if isinstance(result, PhysaiError):
            raise result
        found[number] = result
    return tuple(found[number] for number in range(count))


def _response_changes() -> Iterator[tuple[str, Callable[[ActuatorResponse], ActuatorResponse]]]:
    for factor in GAIN_FACTORS:
        yield (
            f"effort per command x {factor:.3g}",
            lambda one, factor=factor: one.model_copy(update={"gain": factor * one.gain}),
        )
    yield "no lag", lambda one: one.model_copy(update={"dead_time_s": 0.0, "time_constant_s": 0.0})
    for shift_s in LAG_SHIFTS_S:
        yield f"lag {1e3 * shift_s:+.0f} ms", lambda one, shift_s=shift_s: _later(one, shift_s)


def _later(one: ActuatorResponse, shift_s: float) -> ActuatorResponse:
    """Return a response that lags by more, or by less but not before its command."""
    dead_s = one.dead_time_s + shift_s
    constant_s = max(0.0, one.time_constant_s + min(0.0, dead_s))
    return one.model_copy(update={"dead_time_s": max(0.0, dead_s), "time_constant_s": constant_s})


def _each(change: Callable[[ActuatorResponse], ActuatorResponse], responses: Responses) -> Responses:
    return [None if one is None else change(one) for one in responses]
