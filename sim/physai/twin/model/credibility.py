"""Credibility of a twin: it replays held-out recordings closely, and better than the nominal robot and alternatives."""

import math
from collections.abc import Mapping

from physai.twin.model.twin_file import Credibility, Interval, Residuals, TwinRecord
from physai.twin.parameters.parameters import DELAY, OFFSET_STD

ERROR_SHARE = 0.10
"""Maximum credible replay error as a share of the joint's motion in the windows, both root mean square."""
ERROR_FLOOR_MAX = 0.01
"""Maximum of the error that the sensors explain, see `Residuals.floor` [rad or m]. A twin file cannot state more."""
SLIDE_FLOOR_MAX = 0.001
"""The same for a prismatic joint [m], where the kinds of the joints are known: fingers travel some millimetres."""
FLOOR_STDS = 5.0
"""Replay error that the sensor explains, in standard deviations s of a measured position. A parabola through n samples
within a half width h gives a start speed that is off by about s·(3/n)^½/h, at 0.02 s and 11 samples 26 s per second.
After 0.25 s that is a root mean square of 26·0.25/3^½ = 3.8 s, together with those of start and end position 4 s."""
MIN_WINDOW_S = 0.2
"""Minimum length of windows of a credible replay [s]; in shorter ones even wrong models err little."""
MIN_RECORDINGS = 2
"""Minimum number of held-out recordings: one may be the one that happens to fit."""
BLOCK_S, MIN_BLOCKS = 3.0, 3
"""Length of a block of a held-out recording [s], and their minimum number; a shorter recording is one block."""
ALTERNATIVE_RATIO = 0.9
"""An alternative is preferred if the upper end of its error, relative to the twin's, is below this. Not 1, since a fit
minimises errors without what start states explain: by the plain error, a neighbour may be some per cent better."""
GAIN_SHARE = 1e-3
"""Difference to the nominal robot's error that counts, as a share of it: rounding is significant, too."""
ZERO_SHARE = 0.5
"""How much worse than the nominal robot a twin may replay recordings with their own zeros, as a share of its error:
zeros that are really off cost the right model as much as a wrong one."""
OFFSET_SPREAD = 1.96
"""Largest offset of an encoder in a recording that counts as one, in standard deviations `OFFSET_STD` of its prior."""
BLOCK_ROUNDING = 0.02
"""Missing share of a block that is let pass."""
LAG_SHIFTS_S = (-0.006, 0.006)
"""A twin is compared with ones whose commands take effect so much earlier and later [s]; never below 0."""
LAG_DOUBT_S = 0.012
"""How much too low a lag may be that nothing tests [s]."""
NO_LAG, DELAY_CHANGE = "no lag", "command delay"
"""Names of these comparisons."""
NO_RATIO = Interval(value=1.0, lo=0.0, hi=2.0)
"""Of a comparison that was not made."""
LAG_SHARE, LAG_FLOOR_S = 0.25, 0.001
"""Credible error of the command lag: this share of the held-out recordings' lag, or this much [s]."""


def bounds(residuals: Residuals, floor_max: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the maximum credible error per joint [rad or m]: a share of its motion, or what its sensor explains.

    Args:
        residuals: errors, motion and floors.
        floor_max: maximum floor by joint name [rad or m]; `ERROR_FLOOR_MAX` for the others.
    """
    # Files of before floors were recorded state none, which is the strictest.
    floors = residuals.floor or (0.0,) * len(residuals.motion)
    most = floor_max or {}
    return {
        name: max(min(floor, most.get(name, ERROR_FLOOR_MAX)), ERROR_SHARE * motion)
        for name, floor, motion in zip(residuals.joint_names, floors, residuals.motion, strict=True)
    }


def judge(twin: TwinRecord, *, error_bounds: Mapping[str, float] | None = None) -> Credibility:
    """Judge whether a twin is credible.

    There are at least `MIN_RECORDINGS` held-out recordings with `MIN_BLOCKS` blocks, and the windows are at least
    `MIN_WINDOW_S` long. The upper end of every joint's held-out error is below its bound, from measured efforts and, if
    the response of the motors is known, from commands. By a paired bootstrap against the nominal robot, at least one
    joint's error falls significantly (95 % interval above 0) and none rises significantly. No alternative replays the
    recordings significantly better, see `Alternative`. The command lag is that of the held-out recordings, if they
    identify one.

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
    doubts = [
        *_too_large(twin.residuals, limits),
        *_no_gain(twin.residuals),
        *_hidden_by_offsets(twin),
        *_better_alternatives(twin.residuals),
        *_from_commands(twin, error_bounds or {}),
        *_too_few(twin),
        *_other_lag(twin),
    ]
    if not twin.residuals.window_s >= MIN_WINDOW_S:
        doubts.append(
            f"it was judged on windows of {twin.residuals.window_s:g} s, in which wrong models err little, too; "
            f"at least {MIN_WINDOW_S:g} s are needed (`physai sim calibrate --window-s`)"
        )
    # A recording in both sets would make the held-out error meaningless.
    shared = {log.sha256 for log in twin.logs.train} & {log.sha256 for log in twin.logs.held_out}
    if shared:
        doubts.append(f"{len(shared)} of the held-out recordings were used in the fit")
    if doubts:
        return Credibility(holds=False, reasons=tuple(doubts))
    return Credibility(
        holds=True, reasons=(*_summary(twin.residuals, limits), _command_summary(twin), _lag_summary(twin))
    )


def _too_large(residuals: Residuals, limits: Mapping[str, float]) -> list[str]:
    return [
        f"{name}: the upper end of the held-out replay error's 95 % interval, {error.hi:.4f}, is above the bound "
        f"{limits[name]:.4f} (error {error.value:.4f})"
        for name, error in zip(residuals.joint_names, residuals.twin, strict=True)
        if not error.hi <= limits[name]  # true for NaN, too
    ]


def _no_gain(residuals: Residuals) -> list[str]:
    worse = _worse(residuals, "the nominal robot")
    pairs = zip(residuals.gain, residuals.nominal, strict=True)
    if worse or any(gain.lo > GAIN_SHARE * nominal.value for gain, nominal in pairs):
        return worse
    return ["it does not replay held-out recordings significantly better than the nominal robot on any joint"]


def _worse(residuals: Residuals, than: str) -> list[str]:
    return [
        f"{name}: replays worse than {than} by {-gain.value:.4f} ({-gain.hi:.4f} to {-gain.lo:.4f})"
        for name, gain, nominal in zip(residuals.joint_names, residuals.gain, residuals.nominal, strict=True)
        if gain.hi < -GAIN_SHARE * nominal.value
    ]


def _hidden_by_offsets(twin: TwinRecord) -> list[str]:
    """Return what the offsets of the recordings may hide of a wrong model: gravity that points in a wrong direction."""
    doubts: list[str] = []
    for log in (*twin.logs.train, *twin.logs.held_out):
        # Of a robot without a floating base, as is every one with offsets.
        for name, offset, std in zip(twin.joint_names, log.joint_pos_offset, log.joint_pos_offset_std, strict=False):
            if abs(offset) - OFFSET_SPREAD * std > OFFSET_SPREAD * OFFSET_STD:
                doubts.append(
                    f"{name}: its encoder would be off by {offset:.3f} ± {OFFSET_SPREAD * std:.3f} in recording "
                    f"{log.name}, at most {OFFSET_SPREAD * OFFSET_STD:.3f} is plausible: set its zero again, or "
                    "correct where the robot's model has it"
                )
    found = twin.residuals
    if found is not None and found.at_zero and found.gain_at_zero:
        doubts += [
            f"{name}: with the recordings' own zeros it errs by {error:.4f}, {-gain.value:.4f} more than the nominal "
            "robot: offsets of the encoders hide an error of the model"
            for name, error, gain in zip(found.joint_names, found.at_zero, found.gain_at_zero, strict=True)
            if gain.hi < -ZERO_SHARE * error
        ]
    return doubts[:3]


def _better_alternatives(residuals: Residuals) -> list[str]:
    better = [one for one in residuals.alternatives if not one.ratio.hi >= ALTERNATIVE_RATIO]  # true for NaN, too
    return [
        f"with {one.name} it replays the held-out recordings better: {one.ratio.value:.2f} times the error "
        f"({one.ratio.lo:.2f} to {one.ratio.hi:.2f})"
        for one in sorted(better, key=lambda one: one.ratio.value)[:1]
    ]


def _from_commands(twin: TwinRecord, error_bounds: Mapping[str, float]) -> list[str]:
    found = twin.command_residuals
    if found is None:
        return _untested_motors(twin)
    limits = {**bounds(found), **error_bounds}
    doubts = [*_too_large(found, limits), *_worse(found, "an ideal motor"), *_better_alternatives(found)]
    return [f"driven by commands, {doubt}" for doubt in doubts]


def _untested_motors(twin: TwinRecord) -> list[str]:
    """Return what a twin without a replay from commands states that only commands show.

    Its motors' response and its lag do not affect replays of measured efforts, so nothing else tests them.
    """
    by_command = any(parameter.name == DELAY for parameter in twin.parameters)
    # Both fitted and held-out recordings show a lag, so that they show how the motors follow commands, too.
    late = twin.residuals is not None and twin.residuals.command_lag is not None
    if by_command or not (twin.actuators or late):
        return []
    joints = ", ".join(response.joint for response in twin.actuators)
    stated = f"how the motors of {joints} follow commands" if joints else "the lag of held-out recordings"
    return [
        f"it states {stated}, but no replay from commands, which alone tests that: fit and hold out recordings whose "
        "effort commands change in steps (physai sim record --steps 0.1), and calibrate again"
    ]


def enough_recordings(twin: TwinRecord) -> bool:
    """Whether at least `MIN_RECORDINGS` recordings with `MIN_BLOCKS` blocks are held out."""
    return len(twin.logs.held_out) >= MIN_RECORDINGS and _blocks(twin) >= MIN_BLOCKS


def _blocks(twin: TwinRecord) -> int:
    # A recording of 6 s ends one period before that.
    return sum(max(1, int((log.duration_s or 0.0) / BLOCK_S + BLOCK_ROUNDING)) for log in twin.logs.held_out)


def _too_few(twin: TwinRecord) -> list[str]:
    if enough_recordings(twin):
        return []
    # Two fifths of five recordings are two, and 6 s are two blocks.
    return [
        f"held-out recordings: {len(twin.logs.held_out)}, at least {MIN_RECORDINGS} are needed; blocks of {BLOCK_S:g} "
        f"s in them: {_blocks(twin)}, at least {MIN_BLOCKS} are needed; five recordings of {2 * BLOCK_S:g} s are enough"
    ]


def _other_lag(twin: TwinRecord) -> list[str]:
    lag, found = twin.timing.command_lag_mean_s, None if twin.residuals is None else twin.residuals.command_lag
    if found is None:
        return []
    # A twin without a lag is taken to have none.
    off = max(found.lo - (lag or 0.0), (lag or 0.0) - found.hi, 0.0)
    if off <= max(LAG_SHARE * found.value, LAG_FLOOR_S):
        return []
    return [
        f"its command lag is {1e3 * (lag or 0.0):.1f} ms, that of the held-out recordings {1e3 * found.value:.1f} ms "
        f"({1e3 * found.lo:.1f} to {1e3 * found.hi:.1f})"
    ]


def lag_doubt(twin: TwinRecord) -> tuple[float, float]:
    """Return by how much a twin's command lag may be too high, and too low, for all that held-out recordings test [s].

    A lag that they identify is tested, unless they are replayed better with another. So is one where replays with
    another, `LAG_SHIFTS_S` earlier or later, or with none, err significantly more. Twins without residuals were not
    calibrated and state no lag.
    """
    if twin.residuals is None:
        return 0.0, 0.0
    delay = next((parameter.value for parameter in twin.parameters if parameter.name == DELAY), 0.0)
    compared = {one.name: one.ratio for one in twin.residuals.alternatives}
    # A servo's lag is the delay of its targets, which is part of every replay; no lag of efforts tests it.
    by_delay = {name: ratio for name, ratio in compared.items() if name.startswith(DELAY_CHANGE)}
    sent = () if twin.command_residuals is None else twin.command_residuals.alternatives
    found = {one.name: one.ratio for one in sent}
    names = [f"lag {1e3 * shift:+.0f} ms" for shift in LAG_SHIFTS_S]
    if twin.residuals.command_lag is not None and not by_delay:
        # Measured efforts that are a copy of the commands show a lag of 0, and the motion shows the true one.
        earlier, later = (found.get(name, NO_RATIO).hi >= 1.0 for name in names)
        return 0.0 if earlier else -LAG_SHIFTS_S[0], 0.0 if later else LAG_DOUBT_S
    if by_delay:
        lower, upper = (f"{DELAY_CHANGE} {1e3 * max(0.0, delay + shift):.1f} ms" for shift in LAG_SHIFTS_S)
        earlier, later = (ratio.lo > 1.0 for ratio in (by_delay.get(lower, NO_RATIO), by_delay.get(upper, NO_RATIO)))
        none = earlier
    else:
        earlier, later = (found.get(name, NO_RATIO).lo > 1.0 for name in names)
        none = found.get(NO_LAG, NO_RATIO).lo > 1.0
    too_high = 0.0 if earlier and none else math.inf if not none else -LAG_SHIFTS_S[0]
    return too_high, 0.0 if later else LAG_DOUBT_S


def _lag_summary(twin: TwinRecord) -> str:
    lag, found = twin.timing.command_lag_mean_s, None if twin.residuals is None else twin.residuals.command_lag
    delay = next((p for p in twin.parameters if p.name == DELAY and p.identified), None)
    doubt = "" if lag_doubt(twin) == (0.0, 0.0) else f"; policies are played with {_doubted(twin)}, too"
    if lag is None and delay is not None:
        return f"its command delay, {1e3 * delay.value:.1f} ms, was fitted, and the replays above contain it{doubt}"
    if lag is None:
        return f"its command lag is not measured; the task's own delay is used{doubt}"
    if found is None and doubt:
        return f"its command lag, {1e3 * lag:.1f} ms, was not tested on held-out recordings{doubt}"
    if found is None:
        return f"command lag {1e3 * lag:.1f} ms; held-out recordings are replayed worse with another"
    better = f"; these are replayed better with another{doubt}" if doubt else ""
    return f"command lag {1e3 * lag:.1f} ms, that of the held-out recordings {1e3 * found.value:.1f} ms{better}"


def _doubted(twin: TwinRecord) -> str:
    too_high, too_low = (1e3 * doubt_s for doubt_s in lag_doubt(twin))
    ends = [] if not too_high else ["no lag"] if math.isinf(too_high) else [f"{too_high:.1f} ms less"]
    return " and ".join([*ends, f"up to {too_low:.1f} ms more"] if too_low else ends)


def _command_summary(twin: TwinRecord) -> str:
    found = twin.command_residuals
    if found is None:
        return "not tested from commands: no recording shows how its motors follow them"
    errors = ", ".join(f"{name} {error.value:.4f}" for name, error in zip(found.joint_names, found.twin, strict=True))
    return f"from commands: {errors}"


def _summary(residuals: Residuals, limits: Mapping[str, float]) -> list[str]:
    names = residuals.joint_names
    plain = [f", with the recordings' own zeros {error:.4f}" for error in residuals.at_zero] or [""] * len(names)
    return [
        f"{name}: held-out replay error {error.value:.4f} ({error.lo:.4f} to {error.hi:.4f}), "
        f"bound {limits[name]:.4f}, nominal robot {nominal.value:.4f}{zero}"
        for name, error, nominal, zero in zip(names, residuals.twin, residuals.nominal, plain, strict=True)
    ]
