"""Parts of a calibration's page: what the twin was compared with, and how its motors follow commands."""

from collections.abc import Iterator
from html import escape

from physai.twin.calibration.calibrate import Calibration
from physai.twin.logs.signals.response import EffortResponse, effort_response
from physai.twin.model.credibility import ALTERNATIVE_RATIO
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import Alternative, TwinRecord
from physai.twin.parameters.parameters import AGE, AGE_PERIODS, DELAY, DELAY_PERIODS


def alternatives_table(twin: TwinRecord) -> Iterator[str]:
    """Render the held-out error of the twin with one thing changed, relative to its own."""
    parts = (("from measured efforts", twin.residuals), ("from commands", twin.command_residuals))
    rows = [(label, one) for label, found in parts if found is not None for one in found.alternatives]
    if not rows:
        return
    yield "<h2>The twin with one thing changed</h2>"
    yield (
        "<p>Error on the held-out recordings as a multiple of the twin's own. Above 1 the recordings prefer the twin. "
        f"With an interval wholly below {ALTERNATIVE_RATIO:g} they prefer the other, and the twin is not credible; "
        "around 1 they cannot tell the two apart.</p>"
    )
    yield (
        '<div class="panel"><table><thead><tr><th>replay</th><th>changed</th><th class="number">error</th>'
        '<th class="number">95 %</th><th class="optional"></th></tr></thead><tbody>'
    )
    for label, one in rows:
        ratio = one.ratio
        yield (
            f"<tr><td>{label}</td><td>{escape(one.name)}</td><td class='number'>× {ratio.value:.2f}</td>"
            f"<td class='number'>{ratio.lo:.2f} to {ratio.hi:.2f}</td><td class='soft optional'>{_word(one)}</td></tr>"
        )
    yield "</tbody></table></div>"


def evidence_table(twin: Twin) -> Iterator[str]:
    """Render with what the twin was tested, and what would test it further."""
    rows = (
        (
            "replay from measured efforts",
            "effort replay" in twin.evidence_kinds,
            "tests the mechanism; the recordings have no measured efforts",
        ),
        (
            "replay from commands",
            "command replay" in twin.evidence_kinds,
            "tests mechanism, motors and timing together; record commands that change in steps",
        ),
        (
            "closed loop",
            bool(twin.closed_loop),
            "tests the twin with a policy; record runs of one, then: physai sim closed-loop TWIN POLICY LOGS…",
        ),
    )
    yield "<h2>Evidence</h2><table><tbody>"
    for name, tested, advice in rows:
        found = "; ".join(record.describe() for record in twin.closed_loop) if name == "closed loop" else "tested"
        yield f"<tr><td>{name}</td><td>{escape(found if tested else 'not tested')}</td>"
        yield f"<td class='soft'>{'' if tested else escape(advice)}</td></tr>"
    yield "</tbody></table>"


def lag_table(calibration: Calibration) -> Iterator[str]:
    """Render the lag of effort behind command in each recording; nothing if none shows one."""
    parts = (("fitted", calibration.train), ("held out", calibration.held_out))
    logs = [(label, log) for label, score in parts if score is not None for log in score.windows.logs]
    found = [(label, log, effort_response(log)) for label, log in logs]
    if not any(response for *_, responses in found for response in responses):
        return
    head = "".join(f"<th class='number'>{escape(name)}</th>" for name in calibration.twin.joint_names)
    yield "<h2>Lag of effort behind command by recording</h2><table><thead>"
    yield f"<tr><th>recording</th>{head}<th></th></tr></thead><tbody>"
    for label, log, responses in found:
        cells = "".join(f"<td class='number'>{_lag(response)}</td>" for response in responses)
        yield f"<tr><td>{label}: {escape(log.name)}</td>{cells}<td class='soft'>ms</td></tr>"
    yield "</tbody></table><p class='soft small'>Dead time and time constant together, with 95 % interval. Commands "
    yield "that change smoothly show none.</p>"


def _lag(response: EffortResponse | None) -> str:
    if response is None:
        return "not shown"
    lag = response.lag
    return f"{1e3 * lag.lag_s:.1f} ({1e3 * lag.lower_s:.1f} to {1e3 * lag.upper_s:.1f})"


def _word(one: Alternative) -> str:
    if one.ratio.lo > 1.0:
        return "the recordings prefer the twin"
    if one.ratio.hi < ALTERNATIVE_RATIO:
        return "<strong>the recordings prefer this</strong>"
    return "not told apart"


def motor_rows(twin: TwinRecord) -> Iterator[tuple[str, str]]:
    """Describe how each motor follows its commands."""
    for motor in twin.actuators:
        inertia = "" if not motor.inertia else f", less {motor.inertia:.2g} kg·m² or kg times the acceleration"
        limit = "" if motor.effort_max is None else f", at most {motor.effort_max:.3g} N·m or N"
        yield (
            f"effort of {motor.joint} per command",
            f"{motor.gain:.3f} ± {1.96 * motor.gain_std:.3f} after {1e3 * motor.dead_time_s:.1f} ms, time constant "
            f"{1e3 * motor.time_constant_s:.1f} ms{inertia}{limit}, at a period of {1e3 * motor.period_s:.3g} ms",
        )
    periods = twin.timing.command_lag_periods
    if periods is not None:
        yield (
            "lag that waits for the loop",
            f"{periods.value:.2f} periods ({periods.lo:.2f} to {periods.hi:.2f}); the rest is constant",
        )
    yield from _delays(twin)


def _delays(twin: TwinRecord) -> Iterator[tuple[str, str]]:
    """Say how old samples are, and which part of that depends on the loop's period."""
    known = {parameter.name: parameter for parameter in twin.parameters if parameter.identified}
    for label, seconds, periods in (
        ("age of positions behind efforts", AGE, AGE_PERIODS),
        ("from command to measured position", DELAY, DELAY_PERIODS),
    ):
        if seconds in known and periods in known:
            count, constant = known[periods], known[seconds]
            yield (
                label,
                f"{count.value:.2f} ± {1.96 * count.std:.2f} periods of the loop + {1e3 * constant.value:.1f} ± "
                f"{1.96e3 * constant.std:.1f} ms",
            )
        elif seconds in known:
            yield (
                label,
                f"{1e3 * known[seconds].value:.1f} ms, counted as constant: how much of it are periods of the loop is "
                "not known; record at another rate, too",
            )
    if DELAY not in {parameter.name for parameter in twin.parameters} and not {AGE, AGE_PERIODS} <= known.keys():
        yield "age of sensor samples", "not measured, so tasks keep their own; recordings at two rates show it"
