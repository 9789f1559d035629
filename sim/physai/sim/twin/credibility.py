"""Credibility of a twin: it replays held-out recordings closely, and better than the nominal robot."""

from collections.abc import Mapping

from physai.sim.twin.record import Credibility, Residuals, TwinRecord

ERROR_SHARE = 0.10
"""Maximum credible replay error as a share of the joint's motion in the windows, both root mean square."""
ERROR_FLOOR = 0.01
"""Replay error that is always accepted [rad or m]: contact, backlash and a servo's resolution cause as much."""
MIN_WINDOW_S = 0.2
"""Minimum length of windows of a credible replay [s]; in shorter ones even wrong models err less than `ERROR_FLOOR`."""


def bounds(residuals: Residuals) -> dict[str, float]:
    """Return the maximum credible error per joint [rad or m]."""
    return {
        name: max(ERROR_FLOOR, ERROR_SHARE * motion)
        for name, motion in zip(residuals.joint_names, residuals.motion, strict=True)
    }


def judge(twin: TwinRecord, *, error_bounds: Mapping[str, float] | None = None) -> Credibility:
    """Judge whether a twin is credible.

    Three conditions must hold. The windows are at least `MIN_WINDOW_S` long. The upper end of every joint's held-out
    error is below its bound. By a paired bootstrap against the nominal robot, at least one joint's error falls
    significantly (95 % interval above 0) and none rises significantly.

    Args:
        twin: the twin.
        error_bounds: maximum credible error by joint name [rad or m]; the default for the others is that of `bounds`.
    """
    if not twin.logs.train:
        return Credibility(holds=False, reasons=("it was not fitted to recordings of the robot",))
    if twin.residuals is None or not twin.logs.held_out:
        return Credibility(holds=False, reasons=("no held-out recording to judge it on",))
    # Given bounds override the defaults joint by joint.
    limits = {**bounds(twin.residuals), **(error_bounds or {})}
    doubts = _too_large(twin.residuals, limits) + _no_gain(twin.residuals)
    if not twin.residuals.window_s >= MIN_WINDOW_S:
        doubts.append(
            f"it was judged on windows of {twin.residuals.window_s:g} s, in which wrong models err little, too; "
            f"at least {MIN_WINDOW_S:g} s are needed (--window)"
        )
    # A recording in both sets would make the held-out error meaningless.
    shared = {log.sha256 for log in twin.logs.train} & {log.sha256 for log in twin.logs.held_out}
    if shared:
        doubts.append(f"{len(shared)} of the held-out recordings were used in the fit")
    if doubts:
        return Credibility(holds=False, reasons=tuple(doubts))
    return Credibility(holds=True, reasons=tuple(_summary(twin.residuals, limits)))


def _too_large(residuals: Residuals, limits: Mapping[str, float]) -> list[str]:
    return [
        f"{name}: held-out replay error {error.value:.4f} (up to {error.hi:.4f}) is above the bound {limits[name]:.4f}"
        for name, error in zip(residuals.joint_names, residuals.twin, strict=True)
        if not error.hi <= limits[name]  # true for NaN, too
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
    return ["it does not replay held-out recordings significantly better than the nominal robot on any joint"]


def _summary(residuals: Residuals, limits: Mapping[str, float]) -> list[str]:
    return [
        f"{name}: held-out replay error {error.value:.4f} ({error.lo:.4f} to {error.hi:.4f}), "
        f"bound {limits[name]:.4f}, nominal robot {nominal.value:.4f}"
        for name, error, nominal in zip(residuals.joint_names, residuals.twin, residuals.nominal, strict=True)
    ]
