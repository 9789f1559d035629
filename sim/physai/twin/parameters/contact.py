"""Contact parameters of a robot that stands, walks or falls: friction, restitution and contact time of each body.

MuJoCo's contact is a one-sided spring and damper: while two geoms overlap by x, they accelerate apart by
k·x + b·dx/dt, never towards each other (documentation, "Computation", and `solref`). k [1/s²] and b [1/s] include the
effective mass. A contact without gravity then lasts about T = pi/√k, and of the approach speed it returns the share

    e = exp(-2·z·acos(z)/√(1 - z²)),   z = b/(2·√k), and acosh(z)/√(z² - 1) instead for z > 1,

which follows from letting go as soon as the force vanishes (Schwager and Poeschel, Granular Matter 9, 2007). So the
parameters are T and e, not k and b: both have limits that hold for every material, and tosses constrain them apart.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sim.robots.objects import is_object
from physai.sim.robots.spec import has_floating_base
from physai.twin.parameters.parameter import Parameter

Array = npt.NDArray[np.float64]
Field = Callable[[str], Array]
"""Returns a model field, shape (n, …), to write to."""

SLIDING_FRICTION = "sliding_friction"
FRICTIONS = {SLIDING_FRICTION: (0, 3, ""), "torsional_friction": (1, 4, "m"), "rolling_friction": (2, 6, "m")}
"""Column of `geom_friction`, minimum `condim` at which it acts, and unit."""
RESTITUTION, CONTACT_TIME = "restitution", "contact_time"
WHATS = frozenset({*FRICTIONS, RESTITUTION, CONTACT_TIME})
"""Parameters of this module."""

FRICTION_STD, FRICTION_MAX = 0.5, 3.0
"""Of each coefficient of friction, relative to it: tables of materials differ by as much."""
FRICTION_LEAST = {SLIDING_FRICTION: 0.15, "torsional_friction": 0.002, "rolling_friction": 0.0005}
"""Minimum standard deviation of the prior [-, m, m]."""
RESTITUTION_STD, RESTITUTION_MIN, RESTITUTION_MAX = 0.2, 0.05, 0.95
"""Model files rarely mean the restitution of their `solref`; below the minimum, the damper needs shorter time steps."""
CONTACT_TIME_STD, CONTACT_TIME_MAX = 0.5, 3.0
"""Relative to the contact time."""
STEPS_IN_CONTACT = 12
"""Minimum contact time in time steps: with fewer, a simulated bounce returns more than `restitution`."""
_HALVINGS = 60


def contact_parameters(model: Any) -> list[Parameter]:
    """Return the contact parameters of every body of the robot that can touch the world; none with a fixed base."""
    parameters: list[Parameter] = []
    for body, geoms in _touching(model).items():
        name = str(model.body(body).name)
        if name:
            parameters += _body_parameters(model, name, geoms[0])
    return parameters


def _body_parameters(model: Any, name: str, geom: int) -> list[Parameter]:
    """Return the parameters of one body, with the priors of its first geom."""
    friction, solref, condim = _with_world(model, geom)

    def make(what: str, unit: str, prior: float, std: float, lower: float, upper: float) -> Parameter:
        return Parameter(
            name=f"{name}.{what}", unit=unit, prior=float(np.clip(prior, lower, upper)), prior_std=std, lower=lower,
            upper=upper,
        )  # fmt: skip

    parameters: list[Parameter] = []
    for what, (column, least_condim, unit) in FRICTIONS.items():
        if condim >= least_condim:
            prior = float(friction[column])
            std = max(FRICTION_STD * prior, FRICTION_LEAST[what])
            parameters.append(make(what, unit, prior, std, 0.0, max(FRICTION_MAX * prior, 10.0 * std)))
    time, bounce = _bounce_of(solref)
    shortest = STEPS_IN_CONTACT * float(model.opt.timestep)
    longest = max(CONTACT_TIME_MAX * time, 2.0 * shortest)
    parameters.append(make(RESTITUTION, "", bounce, RESTITUTION_STD, RESTITUTION_MIN, RESTITUTION_MAX))
    parameters.append(make(CONTACT_TIME, "s", time, CONTACT_TIME_STD * time, shortest, longest))
    return parameters


def write_contact(model: Any, changes: Iterable[tuple[int, str, Array]], field: Field) -> None:
    """Write values of contact parameters, shape (n,) each, to model fields.

    MuJoCo takes the greater friction and, of solref in the form of stiffness and damping, the stiffer one of two geoms.
    So that the robot's values count, the world's friction becomes 0 and its solref MuJoCo's default, and bodies without
    given values keep what they had together with the world.

    Args:
        model: compiled model of the robot, or of a task with it.
        changes: body, kind of parameter, and values.
        field: access to the fields.
    """
    friction, solref = field("geom_friction"), field("geom_solref")
    touching = _touching(model)
    for geom in (geom for geoms in touching.values() for geom in geoms):
        friction[:, geom], solref[:, geom], _ = _with_world(model, geom)
    for geom in _world_geoms(model):
        friction[:, geom] = 0.0
        if model.geom_solref[geom, 0] <= 0.0:
            solref[:, geom] = mujoco.MjSpec().default.geom.solref
    wanted: dict[int, dict[str, Array]] = {}
    for body, what, values in changes:
        if what in FRICTIONS:
            for geom in _colliding(model, body):
                friction[:, geom, FRICTIONS[what][0]] = values
        else:
            wanted.setdefault(body, {})[what] = values
    for body, values in wanted.items():
        for geom in _colliding(model, body):
            now = np.array([_bounce_of(row) for row in solref[:, geom]])
            time, bounce = values.get(CONTACT_TIME, now[:, 0]), values.get(RESTITUTION, now[:, 1])
            frequency = np.pi / time
            solref[:, geom, 0] = -(frequency**2)
            solref[:, geom, 1] = -2.0 * damping_ratio(bounce) * frequency


def restitution(ratio: Array) -> Array:
    """Return the share of its approach speed with which a contact of this damping ratio parts, shape (n,)."""
    safe = np.abs(ratio - 1.0) > 1e-6
    below, above = np.where(safe & (ratio < 1.0), ratio, 0.0), np.where(safe & (ratio > 1.0), ratio, 2.0)
    turn = np.where(
        ratio < 1.0, np.arccos(below) / np.sqrt(1.0 - below**2), np.arccosh(above) / np.sqrt(above**2 - 1.0)
    )
    return np.exp(-2.0 * ratio * np.where(safe, turn, 1.0))


def damping_ratio(bounce: Array) -> Array:
    """Return the damping ratio with this restitution, the inverse of `restitution`, shape (n,)."""
    low, high = np.zeros_like(bounce), np.full_like(bounce, 100.0)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        more = restitution(middle) > bounce
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return 0.5 * (low + high)


def _bounce_of(solref: Array) -> tuple[float, float]:
    """Return contact time [s] and restitution of a geom's solref in either format."""
    first, second = float(solref[0]), float(solref[1])
    if first > 0.0:  # time constant and damping ratio
        return math.pi * first * second, float(restitution(np.array([second]))[0])
    frequency = math.sqrt(max(-first, 1e-12))
    return math.pi / frequency, float(restitution(np.array([-second / (2.0 * frequency)]))[0])


def _with_world(model: Any, geom: int) -> tuple[Array, Array, int]:
    """Return friction, solref and condim of a geom's contact with the world, as MuJoCo combines them."""
    friction, solref = np.array(model.geom_friction[geom]), np.array(model.geom_solref[geom])
    condim = int(model.geom_condim[geom])
    for other in _world_geoms(model):
        if not _collide(model, geom, other) or model.geom_priority[other] < model.geom_priority[geom]:
            continue
        friction = np.maximum(friction, model.geom_friction[other])
        condim = max(condim, int(model.geom_condim[other]))
        if solref[0] > 0.0 and model.geom_solref[other, 0] > 0.0:
            solref = 0.5 * (solref + model.geom_solref[other])
        else:
            solref = np.minimum(solref, model.geom_solref[other])
    return friction, solref, condim


def _touching(model: Any) -> dict[int, list[int]]:
    """Return the geoms of each body of the robot that can touch the world."""
    world = _world_geoms(model)
    if not has_floating_base(model):
        return {}
    found: dict[int, list[int]] = {}
    for body in range(1, model.nbody):
        # Where the world has priority, the robot's values have no effect.
        geoms = [
            geom
            for geom in _colliding(model, body)
            if any(
                _collide(model, geom, other) and model.geom_priority[other] <= model.geom_priority[geom]
                for other in world
            )
        ]
        if geoms and int(model.body_weldid[body]) != 0 and not is_object(model, body):
            found[body] = geoms
    return found


def _world_geoms(model: Any) -> list[int]:
    return [geom for geom in range(model.ngeom) if int(model.body_weldid[model.geom_bodyid[geom]]) == 0]


def _colliding(model: Any, body: int) -> list[int]:
    first = int(model.body_geomadr[body])
    geoms = range(first, first + int(model.body_geomnum[body]))
    return [geom for geom in geoms if model.geom_contype[geom] or model.geom_conaffinity[geom]]


def _collide(model: Any, one: int, other: int) -> bool:
    return bool(
        model.geom_contype[one] & model.geom_conaffinity[other]
        or model.geom_contype[other] & model.geom_conaffinity[one]
    )
