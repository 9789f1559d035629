"""Progress and results of `physai flash`."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Self, TextIO

from physai.deploy_jetson.update.flash.bundle_upload import BundleUpload
from physai.deploy_jetson.update.flash.deliver import FlashStep
from physai.deploy_jetson.update.flash.rollout import RobotReport
from physai.deploy_jetson.update.flash.target import Target
from physai.sdk.base.terminal import printable, styled, table

_DOING = {
    "connect": "connecting",
    "wait": "waiting",
    "send": "sending",
    "verify": "verifying",
    "write": "writing",
    "reference": "replaying golden states",
    "engine": "building the engine",
    "golden": "replaying golden states on the engine",
    "latency": "measuring latency",
    "seal": "sealing the slot",
    "watch": "on trial",
}
_SHOWS_TEXT = ("connect", "wait", "watch")


class Display:
    """Shows progress: one live line for a single robot, a line per event for a fleet."""

    def __init__(self, stream: TextIO, *, quiet: bool) -> None:
        """Initialize without output.

        Args:
            stream: destination.
            quiet: whether to show only notes.
        """
        self._stream = stream
        self._live = stream.isatty() and not quiet
        self._quiet = quiet
        self._shown = ""
        # Last line without a live display, to skip the repetitions that arrive every second.
        self._last_line = ""
        self._last_lines: dict[Target, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def show(self, step: FlashStep) -> None:
        """Show a step of a single robot."""
        if step.name == "note":
            self._line(f"note: {step.text}")
        elif self._live:
            doing = _DOING.get(step.name, step.name)
            # How long these take depends on the network and on others, so there is no share.
            share = f" {step.share:4.0%}" if step.name not in ("connect", "wait") else ""
            text = f"  {step.text}" if step.name in _SHOWS_TEXT and step.text else ""
            # Cut to one line: a terminal cannot clear a line that has wrapped.
            self._shown = printable(f"{doing}{share}{text}").replace("\n", " ")[:100]
            # Back to the start of the line, and clear it.
            self._stream.write(f"\r\x1b[K{self._shown}")
            self._stream.flush()
        elif step.name in ("connect", "wait") and step.text and not self._quiet and step.text != self._last_line:
            self._last_line = step.text
            self._line(step.text)

    def show_one(self, target: Target, step: FlashStep) -> None:
        """Show notes, waiting and lost connections of one robot of a fleet."""
        # Waiting repeats the same text every second.
        if step.text == self._last_lines.get(target) or not step.text:
            return
        if step.name == "note" or (step.name in ("connect", "wait") and not self._quiet):
            self._last_lines[target] = step.text
            self._line(f"{target}: {step.text}")

    def begin(self, target: Target) -> None:
        """Show that a robot of a fleet has begun."""
        if not self._quiet:
            self._line(f"{target}: begun")

    def finish(self, report: RobotReport, upload: BundleUpload) -> None:
        """Show that a robot of a fleet is done."""
        if not self._quiet:
            self._line(sentence(report, upload))

    def _line(self, text: str) -> None:
        self._clear()
        print(printable(text), file=self._stream, flush=True)

    def _clear(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = ""


def sentence(report: RobotReport, upload: BundleUpload) -> str:
    """Return the result for one robot, as a line of text."""
    who, version, flashed = str(report.target), f"version {upload.version} of {upload.task}", report.flashed
    if flashed is None:
        return printable(f"{who}: {report.outcome}: {report.reason}")
    if report.outcome == "unchanged":
        return printable(f"{who}: nothing to do for {version}: {report.reason}")
    sent = f"{_bytes(flashed.sent_bytes)} of {_bytes(upload.size)} sent in {flashed.seconds.get('transfer', 0.0):.1f} s"
    runs = f", {flashed.runs}" if flashed.runs else ""
    if report.outcome == "on-trial":
        return printable(f"{who}: {version} is active, on trial{runs} ({sent})")
    if report.outcome == "committed":
        return printable(f"{who}: {version} is committed{runs}: {report.reason} ({sent})")
    return printable(f"{who}: WENT BACK from {version}: {report.reason}")


def fleet_table(reports: Sequence[RobotReport]) -> str:
    """Return a table of all robots."""
    import sys

    rows: list[tuple[str, ...]] = []
    for report in reports:
        flashed = report.flashed
        sent = "" if flashed is None else _bytes(flashed.sent_bytes)
        taken = "" if flashed is None else f"{sum(flashed.seconds.values()):.1f} s"
        rows.append((str(report.target), report.outcome, sent, taken, printable(report.reason).replace("\n", " ")))
    done = sum(not report.is_failure and report.outcome != "skipped" for report in reports)
    text = table(("robot", "outcome", "sent", "took", "reason"), rows, indent="")
    verdict = f"{done} of {len(reports)} robots have it"
    return f"{text}\n\n{verdict if done == len(reports) else styled(verdict, 'red', sys.stdout)}"


def record(report: RobotReport, upload: BundleUpload) -> dict[str, Any]:
    """Return the result for one robot, for JSON."""
    flashed = report.flashed
    result: dict[str, Any] = {
        "host": str(report.target),
        "outcome": report.outcome,
        "reason": report.reason,
        "error": report.kind or None,
        "bundle_sha256": upload.sha256,
        "version": upload.version,
        "bundle_bytes": upload.size,
    }
    if flashed is not None:
        names = ("slot", "runs", "sent_bytes", "resumed_bytes", "reconnects", "seconds", "notes")
        result |= {name: getattr(flashed, name) for name in names}
    return result


def fleet_record(reports: Sequence[RobotReport], upload: BundleUpload) -> dict[str, Any]:
    """Return the result for a fleet, for JSON."""
    return {
        "counts": Counter(report.outcome for report in reports),
        "robots": [record(report, upload) for report in reports],
    }


def _bytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
