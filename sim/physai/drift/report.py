"""Report of a drift monitor: the answer, each change in words and numbers, and the next steps."""

from __future__ import annotations

import itertools
import math
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.drift.monitor.lengths import BLOCK_S

if TYPE_CHECKING:
    from physai.drift.equations.changes import Change, Kind
    from physai.drift.equations.frame import Frame
    from physai.drift.monitor.blocks import Block
    from physai.drift.monitor.findings import ChangeRecord, DriftFinding, Outcome
    from physai.drift.monitor.recordings import DatedLog

REACH = 1.96
"""Half width of a 95 % interval in standard deviations."""
LOG_E, NAMED = "log_e_value", "drifted."
"""Names of a signed report's values: the e-value's logarithm, and the prefix of a change that explains a drift."""


@dataclass(frozen=True, kw_only=True)
class DriftMoment:
    """A moment of the recordings."""

    recording: str
    sha256: str
    """Digest of the recording, whatever its file is named."""
    time_s: float
    """In the recording's time [s]."""
    clock_s: float | None
    """Seconds since 1970; None if the recording does not say."""


@dataclass(frozen=True, kw_only=True)
class DriftParameter:
    """One change of the robot, and what the recordings show of it."""

    name: str
    """Such as `link2.mass`."""
    kind: Kind
    owner: str
    """Link or joint; empty for the lag of all commands."""
    unit: str
    """Of amount, lower and upper; empty for a relative change."""
    amount: float
    """Difference from the twin, over the blocks since the drift, else over all; NaN if no block says anything."""
    lower: float
    """Lower end of the 95 % interval."""
    upper: float
    text: str
    """The amount in words."""
    usable_s: float
    """Duration of the blocks that say something of it [s]."""
    seen_from: float
    """Amount from which a change is told from what the twin allows, in `unit`; NaN if no block says anything."""
    watched: bool
    """Whether these blocks are enough for an alarm."""
    time_s: tuple[float, ...]
    """Start of each of these blocks, from the start of the first recording, without the time between recordings."""
    amounts: tuple[float, ...]
    """Amount of each block, in `unit`."""


@dataclass(frozen=True, kw_only=True)
class DriftStep:
    """A step to take next."""

    text: str
    command: str
    """For a shell; empty for what has none."""


@dataclass(frozen=True, kw_only=True)
class DriftReport:
    """Answer of a drift monitor."""

    outcome: Outcome
    reason: str
    """The outcome in one sentence."""
    named: tuple[DriftParameter, ...]
    """Changes that explain a drift, the likeliest first; several if the recordings do not tell them apart."""
    parameters: tuple[DriftParameter, ...]
    since: DriftMoment | None
    """Since when the robot has likely differed."""
    since_s: float | None
    """The same, from the start of the first recording, without the time between recordings [s]."""
    alarm: DriftMoment | None
    """End of the block that raised the alarm."""
    found_after_s: float
    """Usable time from the change to the alarm [s]; 0 without a drift."""
    usable_s: float
    recorded_s: float
    """Duration of all recordings [s]."""
    unusable_s: dict[str, float]
    """Duration of the other blocks [s], by what is wrong with them."""
    needed_s: float
    """Least usable time in which a change is found [s]."""
    alarm_share: float
    steps: tuple[DriftStep, ...]
    remarks: tuple[str, ...]
    robot: str
    unit: str | None
    """Robot that recordings or twin name, MODEL/UNIT; None if they name none, or several."""
    twin: str
    twin_hash: str
    recordings: tuple[str, ...]
    """Names of the recordings in the order in which they were judged."""
    log_e_value: float
    """Natural logarithm of the e-value of an unchanged robot; -inf if no block says anything. It is one over the length
    of the recordings, if these were not chosen by what they show; see `fleet_drift`."""
    page: Path | None = None
    """Page that was written."""


@dataclass(frozen=True, kw_only=True)
class DriftSources:
    """Files that the monitor was given."""

    twin: str
    verdict: Path | None
    page: Path | None


def report_of(
    frame: Frame,
    given: Sequence[DatedLog],
    blocks: Sequence[Block],
    finding: DriftFinding,
    *,
    remarks: Sequence[str],
    alarm_share: float,
    sources: DriftSources,
) -> DriftReport:
    """Put what the blocks show into words."""
    parameters = tuple(_parameter(record, frame, given, blocks) for record in finding.changes)
    named = tuple(parameters[k] for k in finding.named)
    usable = [number for number, block in enumerate(blocks) if block.usable]
    late = 0.0
    if finding.since is not None and finding.alarm is not None:
        late = BLOCK_S * sum(finding.since <= number <= finding.alarm for number in usable)
    unusable = Counter(block.reason for block in blocks if not block.usable)
    since = None if finding.since is None else _moment(blocks[finding.since], given, 0.0)
    report = DriftReport(
        outcome=finding.outcome,
        reason="",
        named=named,
        parameters=parameters,
        since=since,
        since_s=None
        if finding.since is None
        else _before(given)[blocks[finding.since].log] + blocks[finding.since].start_s,
        alarm=None if finding.alarm is None else _moment(blocks[finding.alarm], given, BLOCK_S),
        found_after_s=late,
        usable_s=BLOCK_S * len(usable),
        recorded_s=sum(one.log.duration_s for one in given),
        unusable_s={reason: BLOCK_S * count for reason, count in unusable.most_common()},
        needed_s=BLOCK_S * finding.needed,
        alarm_share=alarm_share,
        steps=(),
        remarks=(*remarks, *_order_remark(given)),
        robot=frame.robot.name,
        unit=_unit(frame, given),
        twin=sources.twin,
        twin_hash=frame.twin.hash,
        recordings=tuple(one.log.name for one in given),
        log_e_value=finding.log_e,
        page=sources.page,
    )
    first = 0 if finding.since is None else blocks[finding.since].log
    files = [one.log.source for one in given[first:]]
    return replace(report, reason=_reason(report), steps=tuple(_steps(report, files, frame.twin.robot, sources)))


def _unit(frame: Frame, given: Sequence[DatedLog]) -> str | None:
    named = {one.log.origin.robot for one in given} | {frame.twin.origin.robot}
    units = {robot for robot in named if robot is not None and "/" in robot}
    return next(iter(units)) if len(units) == 1 else None


def _moment(block: Block, given: Sequence[DatedLog], later_s: float) -> DriftMoment:
    one, time_s = given[block.log], block.start_s + later_s
    clock = None if one.start_s is None else one.start_s + time_s
    return DriftMoment(recording=one.log.name, sha256=one.log.sha256, time_s=time_s, clock_s=clock)


def _before(given: Sequence[DatedLog]) -> list[float]:
    """Return the duration of the recordings before each one [s]."""
    return [0.0, *itertools.accumulate(one.log.duration_s for one in given)]


def _order_remark(given: Sequence[DatedLog]) -> list[str]:
    if len(given) < 2 or all(one.start_s is not None for one in given):
        return []
    return ["the recordings do not say when they were made: judged in the order in which they were given"]


def _parameter(
    record: ChangeRecord, frame: Frame, given: Sequence[DatedLog], blocks: Sequence[Block]
) -> DriftParameter:
    change = record.change
    before = _before(given)
    size = change.size
    lower, upper = record.mean - REACH * record.mean_std, record.mean + REACH * record.mean_std
    return DriftParameter(
        name=change.name,
        kind=change.kind,
        owner=change.owner,
        unit=change.unit,
        amount=size * record.mean,
        lower=size * lower,
        upper=size * upper,
        text=_words(change, size * record.mean, size * lower, size * upper, frame),
        usable_s=BLOCK_S * len(record.blocks),
        seen_from=size * record.seen_from,
        watched=record.watched,
        time_s=tuple(before[blocks[b].log] + blocks[b].start_s for b in record.blocks),
        amounts=tuple(size * amount for amount in record.amount),
    )


def _words(change: Change, amount: float, lower: float, upper: float, frame: Frame) -> str:
    """Describe a difference from the twin with its interval."""
    if not math.isfinite(amount):
        return "no block says anything of it"

    def span(factor: float, unit: str, digits: int = 3) -> str:
        return (
            f"{factor * amount:+.{digits}g}{unit} (95 %: {factor * lower:+.{digits}g} to {factor * upper:+.{digits}g})"
        )

    if change.kind == "mass":
        mass = float(frame.numbers[frame.inverse.row(change.owner), 0])
        return f"mass at {change.owner} {span(1.0, ' kg')}, {amount / mass:+.0%} of the link"
    if change.kind == "friction":
        usual = frame.usual_friction(frame.joints.index(change.owner))
        if usual > 0.0:
            return f"friction of {change.owner} {span(usual, ' N·m')}"
        return f"friction of {change.owner} {span(100.0, ' %')}"
    if change.kind == "gain":
        kind = "servo gain" if frame.drive == "command" else "torque per measured effort"
        return f"{kind} of {change.owner} {span(100.0, ' %')}"
    if change.kind == "drive gain":
        return f"gain of {change.owner}, effort per command, {span(100.0, ' %')}"
    if change.kind == "lag":
        return f"delay of the commands {span(1e3, ' ms')}"
    if change.unit == "m":
        return f"encoder zero of {change.owner} {span(1e3, ' mm')}"
    tool = 1e3 * abs(amount) * frame.tool_reach(change.owner)
    return f"encoder zero of {change.owner} {span(math.degrees(1.0), '°')}, {tool:.0f} mm at the tool"


def _reason(report: DriftReport) -> str:
    if report.outcome == "DRIFTED":
        assert report.since is not None
        what = ", or ".join(one.text for one in report.named)
        return (
            f"{what}; since {report.since.time_s:.0f} s of {report.since.recording}, found after "
            f"{report.found_after_s:.0f} s of usable motion"
        )
    watched = [one.name for one in report.parameters if one.watched]
    wrong = ", ".join(f"{seconds:.0f} s {reason}" for reason, seconds in report.unusable_s.items())
    if report.outcome == "HOLDS":
        return (
            f"{report.usable_s:.0f} s of usable motion show no change of {len(watched)} of {len(report.parameters)} "
            f"parameters beyond what the twin allows; the others were not moved enough to tell"
            if len(watched) < len(report.parameters)
            else f"{report.usable_s:.0f} s of usable motion show no change beyond what the twin allows"
        )
    return (
        f"{report.usable_s:.0f} s of {report.recorded_s:.0f} s are usable, and a change takes at least "
        f"{report.needed_s:.0f} s to be found" + (f"; the rest: {wrong}" if wrong else "")
    )


def _steps(report: DriftReport, files: Sequence[str], robot: str, sources: DriftSources) -> list[DriftStep]:
    if report.outcome == "HOLDS":
        return []
    if report.outcome == "NO EVIDENCE":
        if report.unusable_s.get("unexplained", 0.0) > 0.5 * report.recorded_s:
            text = "most motion fits neither the twin nor any change with a name: compare the recordings with the twin"
            return [DriftStep(text=text, command=shlex.join(["physai", "sim", "replay", sources.twin, *files]))]
        text = f"record at least {report.needed_s:.0f} s of motion through the robot's range, and ask again"
        return [DriftStep(text=text, command="")]
    steps: list[DriftStep] = []
    if report.named[0].kind == "zero":
        owner = report.named[0].owner
        steps.append(DriftStep(text=f"home {owner} again, or set its zero: then this twin may hold again", command=""))
    new = Path(sources.twin).with_name("twin-recalibrated.json")
    fit = ["physai", "sim", "calibrate", robot, *files, "-o", str(new)]
    steps.append(DriftStep(text="recalibrate the twin on recordings since the change", command=shlex.join(fit)))
    judge = ["physai", "sim", "validate", _policy(sources.verdict), "--twin", str(new)]
    steps.append(DriftStep(text="judge the same bytes in the new twin", command=shlex.join(judge)))
    # The twin of the last renewal lies in its own folder, which this one may not write.
    folder = f"renewed-{report.twin_hash[:8]}"
    whole = ["physai", "sim", "renew", *files, "--twin", sources.twin, "--policy", "BUNDLE", "--report", folder]
    steps.append(DriftStep(text="or both at once, to a new or a revoked verdict", command=shlex.join(whole)))
    text = "if they fail: retrain in the new twin, or narrow the conditions under which the policy may run"
    steps.append(DriftStep(text=text, command=""))
    return steps


def _policy(verdict: Path | None) -> str:
    """Return the policy of a report folder, which lies beside its folder, else a word to replace."""
    if verdict is None:
        return "policy.onnx"
    beside = verdict.resolve().parent.parent / "policy.onnx"
    return str(beside) if beside.is_file() else "policy.onnx"


def report_record(report: DriftReport) -> dict[str, Any]:
    """Convert a report to JSON values; NaN becomes None."""

    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    def moment(one: DriftMoment | None) -> dict[str, Any] | None:
        return None if one is None else asdict(one)

    return {
        "outcome": report.outcome,
        "reason": report.reason,
        "named": [one.name for one in report.named],
        "since": moment(report.since),
        "alarm": moment(report.alarm),
        "found_after_s": report.found_after_s,
        "usable_s": report.usable_s,
        "recorded_s": report.recorded_s,
        "unusable_s": dict(report.unusable_s),
        "needed_s": report.needed_s,
        "alarm_share": report.alarm_share,
        "parameters": {
            one.name: {
                "kind": one.kind,
                "unit": one.unit,
                "amount": number(one.amount),
                "lower": number(one.lower),
                "upper": number(one.upper),
                "text": one.text,
                "usable_s": one.usable_s,
                "seen_from": number(one.seen_from),
                "watched": one.watched,
            }
            for one in report.parameters
        },
        "steps": [{"text": step.text, "command": step.command} for step in report.steps],
        "remarks": list(report.remarks),
        "robot": report.robot,
        "unit": report.unit,
        "twin": report.twin,
        "twin_hash": report.twin_hash,
        "recordings": list(report.recordings),
        LOG_E: number(report.log_e_value),
        "report": None if report.page is None else str(report.page),
    }
