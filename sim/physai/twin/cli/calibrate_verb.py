"""`physai sim calibrate`: fits a robot's twin to recordings of it."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from physai.compute.cli.progress_bars import ShareLines, progress_bar
from physai.sdk.base.terminal import printable, say_on_stderr, styled, table
from physai.sdk.cli.shared.options import ValidatorSigning
from physai.sdk.cli.verb import AsJson, Option, verb
from physai.twin.calibration.from_recordings import calibrate

if TYPE_CHECKING:
    from physai.twin.calibration.calibrate import Calibration
    from physai.twin.calibration.fit.fit import FitProgress
    from physai.twin.model.twin import Twin
    from physai.twin.model.twin_file import FittedParameter


@verb(calibrate, summary="fit a robot's twin to recordings of it")
def command(
    call: Callable[..., Calibration],
    *,
    signing: Annotated[ValidatorSigning, Option(flatten=True)],
    split: Annotated[bool, Option(exclusive="split")] = False,
    as_json: AsJson = False,
) -> int:
    """Present the twin and its credibility.

    Two fifths of the recordings are held out of the fit to validate the twin, unless --held-out names them. Ctrl-C
    stops the fit and keeps the best result so far.

    exit code: 0 the twin is credible, 1 it was written but is not credible, 2 it could not be fitted

    Args:
        split: hold two fifths of LOGS out of the fit (default without --held-out).
    """
    key = signing.signing_key()
    with _progress() as progress:
        result = call(key=key, progress=progress, say=say_on_stderr)
    credibility = result.twin.credible()
    if as_json:
        print(json.dumps(_as_json(result)))
    else:
        print(printable("\n".join(_text(result))))
        if credibility.holds:
            # The table above has the error and the bound of each joint; the last reason is about the lag.
            reasons = ["every joint's held-out replay error is within its bound", credibility.reasons[-1]]
        else:
            reasons = list(credibility.reasons)
        word, colour = ("credible", "green") if credibility.holds else ("not credible", "red")
        print(f"{styled(word, colour, sys.stdout)}: {printable('; '.join(reasons))}")
    return 0 if credibility.holds else 1


@contextlib.contextmanager
def _progress() -> Generator[Callable[[FitProgress], None]]:
    """Shows a progress bar over the budget on stderr if it is a terminal, else lines."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn())
    with progress_bar(*columns) as bar:
        line, stage, lines = bar.add_task("preparing", total=1.0), "", ShareLines()

        def report(step: FitProgress) -> None:
            nonlocal stage
            errors = " ".join(f"{x:.4f}" for x in step.rmse)
            text = f"{step.stage}: {step.parameters} parameters, error {errors}"
            bar.update(line, completed=step.share, description=text)
            if bar.disable and step.stage != stage:
                stage = step.stage
                print(f"fitting {step.parameters} parameters to {stage}", file=sys.stderr)
            elif bar.disable:
                lines(f"{text}; of the budget", step.share)

        yield report


def _as_json(result: Calibration) -> dict[str, Any]:
    from physai.twin.calibration.replay.replay import score_record

    twin, credibility = result.twin, result.twin.credible()
    return {
        "twin": str(result.file),
        "hash": twin.hash,
        "report": None if result.report is None else str(result.report),
        "credible": credibility.holds,
        "reasons": list(credibility.reasons),
        "train": score_record(result.train),
        "train_nominal": score_record(result.train_nominal),
        "held_out": None if result.held_out is None else score_record(result.held_out),
        "held_out_nominal": None if result.held_out_nominal is None else score_record(result.held_out_nominal),
        "commanded": None if result.commanded is None else score_record(result.commanded),
        "commanded_nominal": None if result.commanded_nominal is None else score_record(result.commanded_nominal),
        "actuators": [motor.model_dump(mode="json") for motor in twin.actuators],
        "alternatives": {
            label: {one.name: one.ratio.model_dump(mode="json") for one in found.alternatives}
            for label, found in (("held_out", twin.residuals), ("commanded", twin.command_residuals))
            if found is not None
        },
        "parameters": {p.name: p.model_dump(mode="json", exclude={"name"}) for p in twin.parameters},
        "noise": twin.noise.model_dump(mode="json"),
        "sensors": {
            name: joint.model_dump(mode="json") for name, joint in zip(twin.joint_names, twin.sensors, strict=False)
        },
        "timing": twin.timing.model_dump(mode="json"),
        "notes": list(twin.notes),
        "origin": twin.origin.model_dump(mode="json"),
        "signed_by": None if twin.signature is None else twin.signature.key_id,
    }


def _text(result: Calibration) -> Iterator[str]:
    from physai.twin.calibration.page_motors import motor_rows

    twin = result.twin
    known = [p for p in twin.parameters if p.identified]
    yield f"{len(known)} of {len(twin.parameters)} parameters are constrained by the recordings:"
    yield table(("parameter", "value", "95 %", "nominal", "unit"), [_row(p) for p in known])
    if len(known) < len(twin.parameters):
        where = "--report DIR lists them" if result.report is None else "the report lists them"
        yield f"the other {len(twin.parameters) - len(known)} keep their nominal values; {where}"
    yield ""
    yield from _errors(result)
    yield _timing(twin)
    yield from (f"{label}: {text}" for label, text in motor_rows(twin))
    yield from (f"note: {note}" for note in twin.notes)
    yield f"twin    {result.file} ({twin.hash[:12]}), from {twin.origin}"
    if twin.signature is not None:
        yield f"signed  by {twin.signature.key_id[:16]}"
    elif twin.origin.kind == "robot":
        yield "signed  by nobody: gates take its origin for unknown; sign it with --key (physai keys init makes one)"
    if result.report is not None:
        yield f"report  {result.report}"


def _timing(twin: Twin) -> str:
    from physai.twin.parameters.parameters import DELAY

    mean, p99 = twin.timing.command_lag_mean_s, twin.timing.command_lag_p99_s
    # Without measured efforts the lag is unknown, but a fit to positions may still have found a delay.
    delay = next((p for p in twin.parameters if p.name == DELAY and p.identified), None)
    if mean is not None and p99 is not None:
        return f"command-to-effort lag {1e3 * mean:.1f} ms, 99 % within {1e3 * p99:.1f} ms"
    if delay is not None:
        return f"command delay {1e3 * delay.value:.1f} ± {1.96e3 * delay.std:.1f} ms, fitted"
    return "command lag: not identifiable from these recordings; record commands with steps or noise to measure it"


def _row(p: FittedParameter) -> tuple[str, ...]:
    at_bound = " (at its bound)" if p.value in (p.lower, p.upper) else ""
    return p.name, f"{p.value:.4g}{at_bound}", f"± {1.96 * p.std:.2g}", f"{p.prior:.4g}", p.unit


def _errors(result: Calibration) -> Iterator[str]:
    from physai.twin.model.credibility import bounds

    limits = None if result.twin.residuals is None else bounds(result.twin.residuals)
    commanded = None if result.twin.command_residuals is None else bounds(result.twin.command_residuals)
    parts = (
        ("fitted", result.train, result.train_nominal, None),
        ("held out", result.held_out, result.held_out_nominal, limits),
        ("from commands", result.commanded, result.commanded_nominal, commanded),
    )
    rows: list[tuple[str, ...]] = []
    for label, score, nominal, most in parts:
        if score is None or nominal is None:
            continue
        for name, error, before in zip(score.joint_names, score.rmse, nominal.rmse, strict=True):
            logs, bound = len(score.windows.logs), "" if most is None else f"{most[name]:.2g}"
            interval = f"{error.lo:.2g} to {error.hi:.2g}"
            rows.append((f"{label}, {logs} logs", name, f"{error.value:.2g}", interval, f"{before.value:.2g}", bound))
    yield f"replay error over {result.train.windows.window_s:g} s, open loop, root mean square [rad or m]:"
    yield table(("recordings", "joint", "twin", "95 % interval", "nominal", "bound"), rows)
