"""Text of `physai robot status` and `physai robot doctor`."""

import sys

from physai.deploy_jetson.update.agent.status import DoctorCheck, SlotStatus, Status
from physai.deploy_jetson.update.slots.health import HealthFinding
from physai.deploy_jetson.update.slots.slot_records import SlotEvent, VersionTrial
from physai.sdk.base.terminal import printable, styled, table

SHOWN_EVENTS = 8


def status_text(status: Status) -> str:
    """Format the status of a robot for a terminal; warnings come first, in red."""
    lines = [styled(printable(warning), "red", sys.stdout) for warning in status.warnings]
    lines += [
        f"robot  {status.robot}",
        f"floor  {status.floor}: older versions are refused",
        "",
        table(("slot", "state", "version", "task", "runs", "verdict until", "bundle"), _rows(status), indent=""),
    ]
    if status.trial is not None:
        lines += ["", _trial(status.trial, status.health)]
    if status.last_rollback is not None:
        lines += ["", _rollback(status.last_rollback)]
    if status.events:
        rows = [(e.time, e.kind, _version(e), printable(e.reason)) for e in status.events[-SHOWN_EVENTS:]]
        lines += ["", table(("time", "event", "version", "reason"), rows, indent="")]
    return "\n".join(lines)


def _rows(status: Status) -> list[tuple[str, ...]]:
    return [_row(slot, status) for slot in status.slots]


def _row(slot: SlotStatus, status: Status) -> tuple[str, ...]:
    marker = slot.marker
    if marker is None:
        return (slot.slot, "damaged or unfinished" if slot.problems else "empty", "", "", "", "", "")
    on_trial = status.trial is not None and status.trial.slot == slot.slot
    state = "idle" if not slot.active else "active, on trial" if on_trial else "active"
    runs = f"{marker.runtime.member} on {marker.runtime.backend}"
    verdict = "NONE" if marker.unsafe_no_verdict else marker.verdict_expires or ""
    return (slot.slot, state, str(marker.version), marker.task, runs, verdict, marker.bundle_sha256[:12])


def _trial(trial: VersionTrial, health: HealthFinding | None) -> str:
    text = "no counters" if health is None else f"{health.health.value}, {health.reason} ({health.progress:.0%})"
    back = "no policy" if trial.previous is None else f"slot {trial.previous}"
    return f"on trial since {trial.started}: version {trial.version}, else {back}; {printable(text)}"


def _rollback(event: SlotEvent) -> str:
    text = f"went back from version {event.version} at {event.time}: {printable(event.reason)}"
    return styled(text, "bold", sys.stdout)


def _version(event: SlotEvent) -> str:
    return "" if event.version is None else str(event.version)


def checks_text(checks: list[DoctorCheck]) -> str:
    """Format the results of the doctor, one line per check."""
    rows: list[str] = []
    width = max(len(check.name) for check in checks)
    for check in checks:
        good = "warn" if check.is_warning else "ok  "
        mark = good if check.ok else styled("BAD ", "red", sys.stdout)
        rows.append(f"{mark} {check.name.ljust(width)}  {printable(check.found)}")
    return "\n".join(rows)
