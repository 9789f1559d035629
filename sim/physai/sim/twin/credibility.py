"""Whether a twin may be believed: it replays recordings it was not fitted to, and better than the nominal robot."""

from collections.abc import Mapping

from physai.sim.twin.record import Credibility, Residuals, TwinRecord

ERROR_SHARE = 0.10
"""Greatest credible replay error as a share of how far the joint moved in the windows, root mean square."""
ERROR_FLOOR = 0.01
"""An error below this is no reason for doubt however little the joint moved [rad or m]: it is beneath what contact,
backlash and a servo's resolution leave open."""


def bounds(residuals: Residuals) -> dict[str, float]:
    """Greatest credible error per joint [rad or m]."""
    return {
        name: max(ERROR_FLOOR, ERROR_SHARE * motion)
        for name, motion in zip(residuals.joint_names, residuals.motion, strict=True)
    }


def judge(twin: TwinRecord, *, error_bounds: Mapping[str, float] | None = None) -> Credibility:
    """Asks for both: the upper end of every joint's held-out error below its bound, and a gain over the nominal robot.

    The gain is from a paired bootstrap: at least one joint's error falls for certain (95 % interval above 0), and no
    joint's rises for certain.

    Args:
        twin: the twin.
        error_bounds: greatest credible error by joint name [rad or m]; those of `bounds` for joints not named.
    """
    if not twin.logs.train:
        return Credibility(holds=False, reasons=("it was never fitted to recordings of the robot",))
    if twin.residuals is None or not twin.logs.held_out:
        return Credibility(holds=False, reasons=("no recording was kept out of the fit to judge it on",))
    limits = {**bounds(twin.residuals), **(error_bounds or {})}
    doubts = _too_large(twin.residuals, limits) + _no_gain(twin.residuals)
    shared = {log.sha256 for log in twin.logs.train} & {log.sha256 for log in twin.logs.held_out}
    if shared:
        doubts.append(f"{len(shared)} of the recordings it is judged on were fitted too")
    if doubts:
        return Credibility(holds=False, reasons=tuple(doubts))
    return Credibility(holds=True, reasons=tuple(_praise(twin.residuals, limits)))


def _too_large(residuals: Residuals, limits: Mapping[str, float]) -> list[str]:
    return [
        f"{name}: held-out replay error {error.value:.4f} (up to {error.hi:.4f}) is above the bound {limits[name]:.4f}"
        for name, error in zip(residuals.joint_names, residuals.twin, strict=True)
        if not error.hi <= limits[name]
    ]


def _no_gain(residuals: Residuals) -> list[str]:
    pairs = list(zip(residuals.joint_names, residuals.gain, strict=True))
    worse = [
        f"{name}: replays worse than the nominal robot by {-gain.value:.4f} ({-gain.hi:.4f} to {-gain.lo:.4f})"
        for name, gain in pairs
        if gain.hi < 0.0
    ]
    if worse or any(gain.lo > 0.0 for _, gain in pairs):
        return worse
    return ["it does not replay held-out recordings better than the nominal robot, on no joint for certain"]


def _praise(residuals: Residuals, limits: Mapping[str, float]) -> list[str]:
    return [
        f"{name}: held-out replay error {error.value:.4f} ({error.lo:.4f} to {error.hi:.4f}), "
        f"bound {limits[name]:.4f}, nominal robot {nominal.value:.4f}"
        for name, error, nominal in zip(residuals.joint_names, residuals.twin, residuals.nominal, strict=True)
    ]
