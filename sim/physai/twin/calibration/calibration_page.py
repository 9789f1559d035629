"""Render a calibration as a self-contained HTML page: credibility first, then the evidence."""

from collections.abc import Iterator, Sequence
from html import escape

from physai.sdk.pages.style import STYLE
from physai.twin.calibration.calibrate import Calibration
from physai.twin.calibration.page_motors import alternatives_table, evidence_table, lag_table, motor_rows
from physai.twin.calibration.page_plots import error_chart, history_chart, parameter_chart, replay_chart
from physai.twin.model.credibility import bounds, enough_recordings
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import Credibility, FittedParameter, JointReading, Timing

MAX_CHARTS = 60
"""Maximum number of replay plots on a page."""


def calibration_page(calibration: Calibration, *, title: str) -> str:
    """Return the page: HTML with inline styles and SVG that loads no other resource.

    Args:
        calibration: the calibration.
        title: name of the twin, for instance its file.
    """
    credibility = calibration.twin.credible()
    body = "".join(
        [
            *_answer(calibration, credibility, title),
            *_errors(calibration),
            *evidence_table(calibration.twin),
            *alternatives_table(calibration.twin),
            *_parameters(calibration.twin),
            *_replays(calibration),
            *_offsets(calibration.twin),
            *lag_table(calibration),
            *_measured(calibration.twin),
            *_identity(calibration.twin),
        ]
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Twin of {escape(calibration.twin.robot)}</title><style>{STYLE}</style></head>"
        f"<body>{body}</body></html>\n"
    )


def _answer(calibration: Calibration, credibility: Credibility, title: str) -> Iterator[str]:
    twin = calibration.twin
    known = sum(parameter.identified for parameter in twin.parameters)
    outcome, word = ("PASS", "Yes") if credibility.holds else ("INCONCLUSIVE", "No")
    yield f"<h1>{escape(title)} · {escape(twin.robot)}</h1>"
    yield f'<div class="answer {outcome}"><div><div class="soft small">Is this twin credible?</div>'
    yield f'<div class="word">{word}</div></div><div><ul>'
    yield from (f"<li>{escape(reason)}</li>" for reason in credibility.reasons)
    yield (
        f"<li>{known} of {len(twin.parameters)} parameters are constrained by the recordings; the others keep their "
        f"nominal values</li>"
    )
    if not credibility.holds:
        yield f"<li><strong>Next:</strong> {escape(_advice(twin))}</li>"
    yield "</ul></div></div>"
    if twin.notes:
        yield f'<p class="soft">{escape("; ".join(twin.notes))}</p>'


def _advice(twin: Twin) -> str:
    if not enough_recordings(twin):
        return "record the robot more often, at least five times for 6 s: two fifths of all recordings are held out"
    if any("ended early" in note for note in twin.notes):
        return "let the fit finish: set more --budget-steps, or a longer --time-budget-s"
    return (
        "see where the replays below deviate from the recordings; record motions similar to the policy's, and check "
        "which effects the model lacks there"
    )


def _errors(calibration: Calibration) -> Iterator[str]:
    yield '<h2>Replay error</h2><div class="grid">'
    if calibration.held_out is not None and calibration.held_out_nominal is not None:
        limits = None if calibration.twin.residuals is None else bounds(calibration.twin.residuals)
        yield _panel(
            "held-out recordings",
            error_chart(calibration.held_out, calibration.held_out_nominal, limits),
            "Open loop from measured states, root mean square with 95 % bootstrap interval over windows; "
            "dashed: maximum credible error.",
        )
    if calibration.commanded is not None and calibration.commanded_nominal is not None:
        limits = None if calibration.twin.command_residuals is None else bounds(calibration.twin.command_residuals)
        yield _panel(
            "held-out recordings, from commands",
            error_chart(calibration.commanded, calibration.commanded_nominal, limits),
            "The same windows driven by the commands through the twin's motors, and through ideal ones in the nominal "
            "robot.",
        )
    yield _panel(
        "fitted recordings",
        error_chart(calibration.train, calibration.train_nominal, None),
        f"{calibration.fit.windows} windows of {calibration.train.windows.window_s:g} s were fitted.",
    )
    joints = calibration.train.joint_names
    if len(calibration.fit.history) > 1:
        yield _panel(
            "the fit",
            history_chart(calibration.fit.history, joints),
            "The error rises when the fit changes from short to whole windows."
            + (" Shown are the four joints with the greatest error at first." if len(joints) > 4 else ""),
        )
    yield "</div>"


def _parameters(twin: Twin) -> Iterator[str]:
    known = [parameter for parameter in twin.parameters if parameter.identified]
    rest = [parameter for parameter in twin.parameters if not parameter.identified]
    yield "<h2>Parameters that the recordings constrain</h2>"
    if not known:
        yield "<p>None.</p>"
    else:
        yield '<div class="grid">'
        yield _panel(
            "distance from the nominal robot",
            parameter_chart(known),
            "In standard deviations of the prior, with 95 % interval; 0 is the nominal value, pale: 95 % interval of "
            "the prior.",
        )
        yield f'<div class="panel">{_table(known)}</div></div>'
    if rest:
        yield f"<details><summary>{len(rest)} parameters that they do not constrain</summary>"
        yield (
            "<p>They keep their nominal values. Some have no effect on this robot, some need other motions, some only "
            "have an effect together with one above.</p>"
        )
        yield f"{_table(rest)}</details>"


def _table(parameters: Sequence[FittedParameter]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(p.name)}</code></td><td class='number'>{_number(p.value)}</td>"
        f"<td class='number'>± {1.96 * p.std:.2g}</td><td class='number'>{_number(p.prior)}</td>"
        f"<td class='soft'>{escape(p.unit)}{_at_bound(p)}</td></tr>"
        for p in parameters
    )
    return (
        "<table><thead><tr><th>parameter</th><th class='number'>value</th><th class='number'>95 %</th>"
        f"<th class='number'>nominal</th><th></th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _at_bound(parameter: FittedParameter) -> str:
    at_end = parameter.identified and parameter.value in (parameter.lower, parameter.upper)
    return " · at its bound" if at_end else ""


def _number(value: float) -> str:
    return f"{value:.4g}"


def _replays(calibration: Calibration) -> Iterator[str]:
    left = MAX_CHARTS
    parts = (
        ("held-out recordings", calibration.held_out, calibration.held_out_nominal),
        ("held-out recordings from commands", calibration.commanded, calibration.commanded_nominal),
        ("fitted recordings", calibration.train, calibration.train_nominal),
    )
    for label, score, nominal in parts:
        if score is None or nominal is None:
            continue
        yield f'<h2>Replay of {label}</h2><div class="grid">'
        for number, log in enumerate(score.windows.logs):
            for joint, name in enumerate(score.joint_names):
                if left > 0:
                    left -= 1
                    yield _panel(
                        f"{log.name}: {name}",
                        replay_chart(score, number, joint),
                        f"error {score.per_log()[log.name][joint]:.4f}, nominal robot "
                        f"{nominal.per_log()[log.name][joint]:.4f} rad or m",
                    )
        yield "</div>"


def _offsets(twin: Twin) -> Iterator[str]:
    parts = [
        (label, log) for label, logs in (("fitted", twin.logs.train), ("held out", twin.logs.held_out)) for log in logs
    ]
    if not any(log.joint_pos_offset for _, log in parts):
        return
    head = "".join(f"<th class='number'>{escape(name)}</th>" for name in twin.joint_names)
    yield "<h2>Offsets of joint_pos by recording</h2><table><thead>"
    yield f"<tr><th>recording</th>{head}<th></th></tr></thead><tbody>"
    for label, log in parts:
        cells = "".join(
            f"<td class='number'>{value:+.4f} ± {1.96 * std:.2g}</td>"
            for value, std in zip(log.joint_pos_offset, log.joint_pos_offset_std, strict=True)
        )
        yield f"<tr><td>{label}: {escape(log.name)}</td>{cells}<td class='soft'>rad or m</td></tr>"
    yield "</tbody></table><p class='soft small'>Measured minus true position with 95 % interval. An encoder's zero is "
    yield "set anew for each recording; where gravity does not act on a joint, nothing shows it.</p>"


def _measured(twin: Twin) -> Iterator[str]:
    noise = twin.noise
    yield "<h2>Measured on the recordings</h2><table><tbody>"
    for label, values, unit in (
        ("noise of joint_pos (standard deviation)", noise.joint_pos_std, "rad or m"),
        ("noise of joint_vel", noise.joint_vel_std, "rad/s or m/s"),
        ("noise of joint_effort", noise.joint_effort_std, "N·m or N"),
    ):
        text = ", ".join(f"{x:.3g}" for x in values) if values else "not measured"
        yield f"<tr><td>{label}</td><td>{text}</td><td class='soft'>{unit if values else ''}</td></tr>"
    for name, joint in zip(twin.joint_names, twin.sensors, strict=False):
        yield f"<tr><td>readings of {escape(name)}</td><td>{_reading(joint)}</td><td></td></tr>"
    rows = (*_times(twin.timing), *motor_rows(twin))
    yield from (f"<tr><td>{escape(label)}</td><td>{value}</td><td></td></tr>" for label, value in rows)
    yield "</tbody></table>"


def _reading(joint: JointReading) -> str:
    steps = [
        f"{name} in steps of {step:.3g}"
        for name, step in (("joint_pos", joint.joint_pos_resolution), ("joint_vel", joint.joint_vel_resolution))
        if step
    ]
    if joint.joint_vel != "measured":
        through = joint.joint_vel_time_constant_s
        steps.append(
            f"joint_vel is the {joint.joint_vel} difference of joint_pos, span {joint.joint_vel_span}"
            + (f", low-pass filter of {1e3 * through:.3g} ms" if through else "")
        )
    return "; ".join(steps) or "no steps or differences found"


def _times(timing: Timing) -> Iterator[tuple[str, str]]:
    def text(*values: float | None) -> str:
        return ", ".join("not measured" if value is None else f"{1e3 * value:.3g} ms" for value in values)

    yield "lag of effort behind command: mean, 99 %", text(timing.command_lag_mean_s, timing.command_lag_p99_s)
    yield (
        "loop period: median, 99 %, maximum",
        text(timing.period_median_s, timing.period_p99_s, timing.period_max_s),
    )


def _identity(twin: Twin) -> Iterator[str]:
    yield "<h2>Identity</h2><table><tbody>"
    yield f"<tr><td>twin</td><td class='hash'>{twin.hash}</td></tr>"
    yield f"<tr><td>nominal model</td><td class='hash'>{twin.model_sha256}</td></tr>"
    for label, logs in (("fitted", twin.logs.train), ("held out", twin.logs.held_out)):
        yield from (f"<tr><td>{label}: {escape(log.name)}</td><td class='hash'>{log.sha256}</td></tr>" for log in logs)
    yield f"<tr><td>physai</td><td>{escape(str(twin.software or twin.physai_version))}</td></tr></tbody></table>"


def _panel(title: str, drawing: str, note: str) -> str:
    return f'<div class="panel"><h3>{escape(title)}</h3>{drawing}<p class="soft small">{escape(note)}</p></div>'
