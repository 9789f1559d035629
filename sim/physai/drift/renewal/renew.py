"""Renew what rests on a twin: from recordings that drifted to a new twin, and to a new or revoked verdict."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from physai.drift.watch import ALARM_SHARE
from physai.gates.report.validation_options import DEFAULTS, ValidationOptions
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.arguments import require_range, writable_folder
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.drift.monitor.recordings import DatedLog
    from physai.drift.renewal.steps import RenewalSteps
    from physai.drift.watch import WatchedInputs
    from physai.sdk.evidence.requirements import Requirements
    from physai.sdk.evidence.verdict import Verdict
    from physai.sdk.signing.ed25519 import SigningKey
    from physai.twin.logs import RobotLog

DRIFT_FILE, PAGE_FILE, STATUS_FILE = "drift.json", "drift.html", "status.json"
LATE_S = 10.0
"""Latest moment of a recording at which a change counts as one before it: it is known to some blocks only [s]."""
MAX_DRIFT_BYTES = 1 << 20

RenewalOutcome = Literal["HOLDS", "NO EVIDENCE", "PASS", "FAIL", "INCONCLUSIVE"]
"""`HOLDS` and `NO EVIDENCE` of the monitor, which change nothing; else the outcome of the new verdict."""


@dataclass(frozen=True, kw_only=True)
class Renewal:
    """Result of a renewal."""

    outcome: RenewalOutcome
    reason: str
    """The monitor's answer in one sentence."""
    folder: Path | None = None
    """None if nothing was written."""
    twin: Path | None = None
    """The recalibrated twin."""
    verdict: Verdict | None = None
    """The verdict on the same bytes in it."""
    bundle: Path | None = None
    """The bundle with the new verdict, signed."""
    status: Path | None = None
    """The status document that revokes the old verdict."""
    command: str = ""
    """Command that is left to run, for a shell; empty if there is none."""


def renew(
    recordings: Annotated[Sequence[str | Path], Option(metavar="RECORDING")],
    *,
    twin: Annotated[Path | str, Option(metavar="TWIN")],
    policy: Annotated[Path | str, Option(metavar="BUNDLE")],
    report: Annotated[Path | str, Option(metavar="DIR")],
    columns: Annotated[Path | str | None, Option(metavar="YAML")] = None,
    alarm_share: float = ALARM_SHARE,
    budget_steps: int = 30_000_000,
    recorded_on: Annotated[str | None, Option(metavar="ROBOT")] = None,
    days: Annotated[float, Option(metavar="N")] = 90,
    replay: Annotated[str | int, Option(metavar="N")] = "all",
    status: Path | str | None = None,
    trust: Path | str | None = None,
    settings: Path | str | None = None,
    options: Annotated[ValidationOptions, Option(flatten=True)] = DEFAULTS,
    key: SigningKey | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Renewal:
    """Judge a policy again after a drift: watch, recalibrate, validate, and sign a new verdict or revoke the old one.

    Without a drift nothing is written. Each step's output is a file of the report folder; started again with the same
    arguments, a renewal goes on after the last step that is done.

    Args:
        recordings: recordings since the calibration, as for `drift`. Those begun since the change are the ones that the
            new twin is fitted to, and tested with.
        twin: twin.json that the present verdict rests on.
        policy: bundle whose policy is judged again; also a run folder or policy.onnx, for which nothing is signed.
        report: folder for the new twin, the report of the validation, and the bundle or status document.
        columns: column map for all recordings.
        alarm_share: largest share of unchanged runs of 10 minutes that may be said to have drifted.
        budget_steps: physics steps that the fit of the twin may simulate.
        recorded_on: the recorded robot, MODEL/UNIT such as ur10e/cell-3, which the new verdict is for, or the old one
            is revoked for. None for the unit that the recordings name, else the robot of the present verdict.
        days: validity of a new verdict in days.
        replay: batches of episodes to replay before a verdict is signed, or `all`.
        status: status document to write; if it exists, the new one follows the one in it. None for status.json in the
            report folder.
        trust: trust file whose validators may have signed evidence and the status document. None for
            ~/.config/physai/keys/trust.json.
        settings: the robot's requirements on verdicts, JSON, which a new one must meet. None for every gate.
        options: see `ValidationOptions`.
        key: validator's key, which signs the twin and the bundle or status document; None leaves the last one to you.
        say: called with lines of progress.

    Returns:
        The outcome, the files written, and the command that is left to run.

    Raises:
        DriftError: the bundle's verdict rests on another twin, too few recordings were begun since the change, or the
            options name another task or robot than the policy's.
        PhysaiError: a recording, the twin, the policy or the folder is unusable, the twin or the policy is a file that
            the renewal would write, or an argument is out of range.
    """
    from physai.drift.renewal.judged_policy import JudgedPolicy
    from physai.drift.renewal.stages import RenewalStages
    from physai.drift.renewal.steps import RenewalSteps
    from physai.drift.watch import watched_inputs
    from physai.sdk.signing.files.rederivation import VerdictTerms
    from physai.sdk.signing.files.user_keys import trusted_validators

    require_range("days", days, 0.01, 3650)
    folder = Path(report)
    if folder.exists() and not folder.is_dir():
        raise PhysaiError(f"`report` {folder} is a file; name a folder")
    inputs = watched_inputs(
        recordings, twin=twin, verdict=None, columns=columns, alarm_share=alarm_share, page=folder / PAGE_FILE
    )
    judged = JudgedPolicy.read(policy, inputs.twin.hash)
    _require_apart(folder, Path(twin), Path(policy))
    steps = RenewalSteps(folder, key)
    found, of = _drift(steps, inputs, say)
    if found["outcome"] != "DRIFTED":
        return Renewal(outcome=found["outcome"], reason=found["reason"])
    logs = since_change(inputs.given, found["since"])
    own = () if key is None else (key.public_key("validator"),)
    validators = (*options.validators, *trusted_validators(trust), *own)
    stages = RenewalStages(steps=steps, inputs=inputs, policy=judged, key=key, say=say)
    fitted = stages.twin(of, logs, budget_steps, recorded_on)
    verdict = stages.verdict(fitted, replace(options, validators=validators))
    told = recorded_on or found["unit"] or judged.robot or inputs.robot.name
    passed = verdict.outcome == "PASS"
    say(f"4/4 {'signing the verdict' if passed else 'revoking the verdict'}, for {told}")
    word = folder / STATUS_FILE if status is None else Path(status)
    terms = VerdictTerms(
        robot=told,
        days=days,
        replay=replay,
        device=str(options.device),
        task=None if options.task is None else str(options.task),
        model=options.model,
        trust=trust,
        requirements=_requirements(options, settings),
        say=say,
    )
    act = stages.signed(verdict, terms, word) if passed else stages.revoked(verdict, found["reason"], terms, word)
    return Renewal(
        outcome=verdict.outcome.value,
        reason=found["reason"],
        folder=folder,
        twin=fitted,
        verdict=verdict,
        bundle=act.file if passed else None,
        status=None if passed else act.file,
        command=act.command,
    )


def _require_apart(folder: Path, twin: Path, policy: Path) -> None:
    """Raise PhysaiError for a twin or policy that the renewal would replace."""
    from physai.drift.renewal.stages import TWIN_FILE
    from physai.drift.renewal.steps import STEPS_FILE

    written = [folder / n for n in (TWIN_FILE, DRIFT_FILE, PAGE_FILE, STATUS_FILE, STEPS_FILE, policy.name)]
    for option, given in (("twin", twin), ("policy", policy)):
        for out in written:
            if out.is_file() and out.samefile(given):
                raise PhysaiError(
                    f"`{option}` {given} would be replaced by the renewal's {out}; give another `report` folder"
                )


def _drift(
    steps: RenewalSteps, inputs: WatchedInputs, say: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, object]]:
    """Return the monitor's record, and the inputs that it follows from; a drift is kept in the folder."""
    from physai.drift.page import drift_page
    from physai.drift.renewal.stages import share_lines
    from physai.drift.renewal.steps import log_hash
    from physai.drift.report import report_record
    from physai.drift.watch import judged
    from physai.sdk.base.files import read_bounded
    from physai.sdk.base.parameters.arguments import write_page

    of: dict[str, object] = {
        "twin": inputs.twin.hash,
        "recordings": [log_hash(one.log) for one in inputs.given],
        "calibration": [log_hash(log) for log in inputs.own],
        "alarm_share": inputs.alarm_share,
    }
    file = steps.folder / DRIFT_FILE
    if steps.is_done("drift", of, file):
        record: dict[str, Any] = json.loads(read_bounded(file, limit=MAX_DRIFT_BYTES, error=PhysaiError))
        say(f"1/4 drift: done before; {record['reason']}")
        return record, of
    report = judged(inputs, share_lines("1/4 drift", say))
    record = report_record(report)
    say(f"1/4 drift: {report.outcome}: {report.reason}")
    if report.outcome == "DRIFTED":
        writable_folder("report", steps.folder)
        write_page(steps.folder / PAGE_FILE, drift_page(report))
        write_page(file, json.dumps(record, ensure_ascii=False, indent=2))
        steps.keep("drift", of, file)
    return record, of


def since_change(given: Sequence[DatedLog], since: Mapping[str, Any]) -> tuple[RobotLog, ...]:
    """Return the recordings begun since the change: one in which it lies is of two robots.

    Raises:
        DriftError: they are too few to fit a twin to some and to test it with the others.
    """
    from physai.drift.errors import DriftError
    from physai.twin.calibration.split import HELD_OUT_SHARE
    from physai.twin.model.credibility import MIN_RECORDINGS

    # By its digest: the file may have been renamed since the drift was found.
    first = [one.log.sha256 for one in given].index(since["sha256"]) + (since["time_s"] > LATE_S)
    logs = tuple(one.log for one in given[first:])
    least = math.ceil(MIN_RECORDINGS / HELD_OUT_SHARE)
    if len(logs) < least:
        raise DriftError(
            f"drifted since {since['time_s']:.0f} s of {since['recording']}, and {len(logs)} of {len(given)} "
            f"recordings were begun since then; a new twin needs at least {least}: record the robot as it is now, and "
            "give these recordings as well"
        )
    return logs


def _requirements(options: ValidationOptions, settings: Path | str | None) -> Requirements:
    """Return a robot's requirements, accepting the origins of evidence that the validation accepts."""
    from physai.sdk.evidence.origin import parse_accepted
    from physai.sdk.evidence.requirements import Requirements

    given = options.accept
    accept = parse_accepted(given, option="`accept`") if isinstance(given, str) else tuple(given)
    required = Requirements() if settings is None else Requirements.load(Path(settings))
    return required.model_copy(update={"accept": accept})
