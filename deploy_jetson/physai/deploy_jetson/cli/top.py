"""`physai robot top`: watch the runtime that drives this robot."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any

from physai.deploy_jetson.update.robot_tree import TreeOption, tree_of
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, styled, table
from physai.sdk.cli.verb import AsJson, Option, verb

# Default refresh period [s].
EVERY_S = 0.5

# Longest wait for an answer of the runtime [s].
ANSWER_S = 1.0

_CLEAR = "\x1b[H\x1b[J"
_BAR = 30
_SHARES = ("p50", "p99", "p99.9", "max")


@verb(summary="watch the runtime that drives this robot")
def top_verb(
    *,
    every_s: Annotated[float, Option(old=("--every",))] = EVERY_S,
    once: bool = False,
    tree: TreeOption = None,
    as_json: AsJson = False,
) -> int:
    """Show the status until interrupted or the runtime ends.

    Args:
        every_s: refresh period [s].
        once: print the status once and exit.
    """
    from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, ControlError, listens, tell
    from physai.deploy_jetson.update.slots.health import health_path

    if not 0.05 <= every_s <= 60.0:
        raise PhysaiError(f"--every-s must lie in 0.05 … 60 s, got {every_s}")
    path = health_path(tree_of(tree).existing()).with_name(CONTROL_FILE)
    live = sys.stdout.isatty() and not as_json
    # `seen` tells a runtime that ends from one that never ran.
    view, seen = _View(), False
    try:
        while True:
            try:
                status = tell(path, "status", timeout_s=ANSWER_S)
            except ControlError as error:
                if once or not listens(path):
                    raise
                # A busy machine may delay the answer, so only the socket tells whether the runtime has ended.
                print(f"{printable(str(error))}; looking again", file=sys.stderr, flush=True)
            else:
                seen = True
                _show(status, view, once=once, live=live, as_json=as_json)
                if once:
                    return 0
            time.sleep(every_s)
    except KeyboardInterrupt:
        return 0
    except ControlError as error:
        if not seen:
            raise
        print(f"the runtime has ended: {printable(str(error))}", file=sys.stderr)
        return 0


class _View:
    """Remembers the previous tick count, to compute rates."""

    def __init__(self) -> None:
        self._ticks: int | None = None
        self._at_s = 0.0

    def rate_hz(self, status: Mapping[str, Any]) -> float | None:
        """Return the ticks per second since the last call; None on the first one."""
        now_s, ticks = time.monotonic(), int(status.get("ticks", 0))
        before, since_s = self._ticks, now_s - self._at_s
        self._ticks, self._at_s = ticks, now_s
        return None if before is None or not since_s > 0.0 else (ticks - before) / since_s


def _show(status: Mapping[str, Any], view: _View, *, once: bool, live: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps(status, indent=2 if once else None), flush=True)
        return
    rate_hz = view.rate_hz(status)
    if live or once:
        print((_CLEAR if live and not once else "") + page(status, rate_hz), flush=True)
    else:
        print(line(status), flush=True)


def line(status: Mapping[str, Any]) -> str:
    """Format the status in one line, for a file or a pipe."""
    whole = status.get("stages_us", {}).get("whole", {})
    words = [str(status.get("lifecycle")), str(status.get("guard", "-")), f"{status.get('ticks', 0)} ticks"]
    words += [f"{status.get('missed', 0)} missed", f"{status.get('interventions', 0)} interventions"]
    words += [f"whole {share} {whole[share]:.0f} us" for share in _SHARES if share in whole]
    return printable(", ".join([*words, str(status["why"])] if status.get("why") else words))


def page(status: Mapping[str, Any], rate_hz: float | None) -> str:
    """Format the status for a terminal.

    Args:
        status: see `Runtime.status`.
        rate_hz: measured ticks per second; None if unknown.
    """
    lines = [_title(status), *_state(status, rate_hz), ""]
    stages: Mapping[str, Mapping[str, float]] = status.get("stages_us", {})
    if stages:
        # Scaled to the whole tick: the sensors' age is mostly longer, but is waiting rather than work.
        longest = stages["whole"]["p99.9"] if "whole" in stages else 0.0
        rows = [
            (name, *(f"{numbers[share]:.0f}" for share in _SHARES), _bar(numbers, longest))
            for name, numbers in stages.items()
        ]
        lines += [table(("stage [µs]", *_SHARES, "p50 # p99 = p99.9 -"), rows, indent=""), ""]
    counts = ("ticks", "missed", "skipped", "interventions", "rises", "swaps", "repeated", "uncounted")
    lines.append("  ".join(f"{name} {status[name]}" for name in counts if name in status))
    recorder = status.get("recorder")
    if recorder:
        state = recorder["problem"] or f"{recorder['files']} written, last {recorder['last'] or 'none'}"
        lines.append(printable(f"recorder: {recorder['seconds']:g} s; {state}"))
    if recorder and recorder.get("segments"):
        segments = recorder["segments"]
        lost = f"{segments['lost']} and {segments['lost_ticks']} ticks lost"
        lines.append(printable(f"segments: {segments['written']} written, {lost}, last {segments['last'] or 'none'}"))
    shadow = status.get("shadow")
    if shadow:
        lines += _shadow(shadow)
    if "metrics" in status:
        lines.append(printable(f"metrics: {status['metrics']}"))
    return "\n".join(lines)


def _shadow(shadow: Mapping[str, Any]) -> list[str]:
    """Describe the second policy, which commands nothing."""
    version = f" version {shadow['version']}" if "version" in shadow else ""
    text = f"shadow:{version} {shadow['state']}"
    if "ticks" in shadow:
        text += (
            f"; {shadow['ticks']} ticks, {shadow['starts']} starts, {shadow['late']} late, {shadow['stops']} stops, "
            f"{sum(shadow['interventions'].values())} interventions"
        )
    lines = [printable(text + (f", dropped {shadow['dropped']} times" if shadow["dropped"] else ""))]
    if shadow["problem"]:
        lines.append(printable(f"shadow: {shadow['problem']}"))
    most = sorted(shadow.get("divergence", ()), key=lambda one: -one["greatest"])[:3]
    words = "shadow: {joint} {output} differs by {rms:.3g} rms, {greatest:.3g} at most"
    return lines + [printable(words.format(**joint)) for joint in most]


def _title(status: Mapping[str, Any]) -> str:
    if "version" not in status:
        return styled(printable(f"{status.get('lifecycle')}: no policy is loaded yet"), "bold", sys.stdout)
    text = f"version {status['version']} in slot {status['slot']} over {status.get('transport')}"
    if status.get("lease"):
        text += f", lease {status['lease']}"
    return styled(printable(text), "bold", sys.stdout)


def _state(status: Mapping[str, Any], rate_hz: float | None) -> list[str]:
    guard = str(status.get("guard", "-"))
    rate = "" if rate_hz is None else f"{rate_hz:.0f} of "
    nominal = f", {rate}{status['rate_hz']:.0f} Hz" if "rate_hz" in status else ""
    colour = "green" if guard == "RUN" else "red"
    lines = [
        f"{printable(str(status.get('lifecycle')))}{nominal}, guard {styled(printable(guard), colour, sys.stdout)}"
    ]
    if status.get("why"):
        lines.append(printable(f"why: {status['why']}"))
    verdict: Mapping[str, Any] = status.get("verdict", {})
    whys = (verdict.get(name) for name in ("barred", "problem", "not_durable"))
    lines += [styled(printable(str(why)), "red", sys.stdout) for why in whys if why]
    if status.get("unsafe_no_verdict"):
        lines.append(styled("WITHOUT A VALID VERDICT", "red", sys.stdout))
    return lines


def _bar(numbers: Mapping[str, float], longest: float) -> str:
    """Draw median, 99 % and 99.9 % on one scale for all stages, clipped."""
    parts = [max(0.0, numbers[share]) / longest if longest > 0.0 else 0.0 for share in _SHARES[:3]]
    # Each mark continues where the one before ends, so the bar shows three numbers in one line.
    ends = [round(_BAR * min(1.0, part)) for part in parts]
    return "".join(mark * (end - begin) for mark, begin, end in zip("#=-", (0, *ends), ends, strict=False))
