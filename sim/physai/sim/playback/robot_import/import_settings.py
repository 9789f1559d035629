"""Decisions that a user takes when a robot is imported; each is an option of `physai robots import`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.arguments import require_range
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.sim.robots.importing.importer import ImportOptions


@dataclass(frozen=True, kw_only=True)
class ImportSettings:
    """Decisions about a robot that its file leaves open.

    Attributes:
        ee: link or site at the end effector. None for one chosen by name and chain.
        servo: gains of all servos KP,KD [N·m/rad, N·m·s/rad], effort for motors instead of servos, or none to keep the
            file's actuators; auto takes them from effort limit, inertia and bandwidth.
        bandwidth: bandwidth of auto's servos [Hz].
        speed: speed limit of hinges without one [rad/s].
        effort: effort limits instead of the file's [N·m, N]: one of all joints, or JOINT=N_M,… with patterns as
            wrist_*.
        drive: joints that get a servo, JOINT,…. None for those with an actuator.
        fix: joints of a URDF to hold still, JOINT,…; patterns as gripper_*.
        floating: the base of a URDF is free (default: if it has legs).
        fixed_base: the base of a URDF is fixed to the world.
        gravcomp: servos of a fixed robot carry its weight.
        counterbalance: springs or counterweights carry weight beyond a stated effort limit.
        balance: raise moments of inertia that no body can have.
        decimate: reduce visual meshes to so many triangles each; collisions and masses stay. None for all.
    """

    ee: Annotated[str | None, Option(metavar="LINK")] = None
    servo: Annotated[str, Option(metavar="KP,KD")] = "auto"
    bandwidth: Annotated[float, Option(metavar="HZ")] = 5.0
    speed: Annotated[float, Option(metavar="RAD_S")] = 2.0
    effort: Annotated[str | None, Option(metavar="N_M")] = None
    drive: Annotated[str | None, Option(metavar="JOINT,…")] = None
    fix: Annotated[str | None, Option(metavar="JOINT,…")] = None
    floating: Annotated[bool, Option(exclusive="base")] = False
    fixed_base: Annotated[bool, Option(exclusive="base")] = False
    gravcomp: Annotated[bool, Option(help="servos of a fixed robot do not carry its weight")] = True
    counterbalance: Annotated[
        bool,
        Option(help="motors alone carry the weight, also where a stated effort limit is less than it at home"),
    ] = True
    balance: bool = False
    decimate: Annotated[int | None, Option(metavar="FACES")] = None

    def options(self) -> ImportOptions:
        """Options of the importer.

        Raises:
            PhysaiError: a value is malformed or out of range.
        """
        from physai.sim.robots.importing.actuation import Servos
        from physai.sim.robots.importing.importer import ImportOptions
        from physai.sim.robots.importing.meshes.assets import MAX_STL_FACES
        from physai.sim.robots.importing.meshes.decimation import LEAST_FACES

        require_range("bandwidth", self.bandwidth, 0.1, 100.0)
        require_range("speed", self.speed, 1e-3, 1e3)
        if self.decimate is not None:
            require_range("decimate", self.decimate, LEAST_FACES, MAX_STL_FACES)
        kp, kd = _gains(self.servo)
        return ImportOptions(
            end_effector=self.ee,
            servos=Servos(
                kp=kp,
                kd=kd,
                bandwidth_hz=self.bandwidth,
                speed=self.speed,
                keep=self.servo == "none",
                effort=self.servo == "effort",
                efforts=_efforts(self.effort),
            ),
            driven=_names(self.drive),
            fixed=_names(self.fix) or (),
            floating=True if self.floating else False if self.fixed_base else None,
            compensate=self.gravcomp,
            counterbalance=self.counterbalance,
            balance=self.balance,
            faces=self.decimate,
        )


DEFAULTS = ImportSettings()


def _gains(text: str) -> tuple[float | None, float | None]:
    if text in ("auto", "none", "effort"):
        return None, None
    parts = text.split(",")
    try:
        kp, kd = (float(part) for part in parts)
    except ValueError as error:
        raise PhysaiError(f"`servo` {text[:40]}: expected auto, effort, none, or two numbers as 100,10") from error
    for name, gain, least in (("KP", kp, 1e-6), ("KD", kd, 0.0)):
        if not least <= gain <= 1e9:
            raise PhysaiError(f"`servo` {name} must lie in {least:g} … 1e9, got {gain:g}")
    return kp, kd


def _efforts(text: str | None) -> tuple[tuple[str, float], ...]:
    from physai.sim.robots.importing.actuation import LARGEST_EFFORT

    pairs: list[tuple[str, float]] = []
    for part in [] if text is None else text.split(","):
        joint, _, number = part.rpartition("=")
        try:
            effort = float(number)
        except ValueError as error:
            raise PhysaiError(f"`effort` {part[:40]}: expected a number, or JOINT=NUMBER as wrist_*=28") from error
        require_range("effort", effort, 1e-6, LARGEST_EFFORT)
        pairs.append((joint or "*", effort))
    return tuple(pairs)


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name for name in text.split(",") if name)
