"""`physai logs`: checks recordings of a robot before a twin is calibrated on them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from physai.compute.cli.progress_bars import share_bar
from physai.sdk.base.terminal import printable, styled, table
from physai.sdk.cli.verb import AsJson, noun, verb
from physai.twin.logs.check_logs import check_logs

if TYPE_CHECKING:
    from physai.twin.logs.check_logs import LogsCheck
    from physai.twin.logs.quality import QualityReport

_STYLES = {"defect": "red", "warning": "bold", "note": "dim"}


@verb(check_logs, summary="check whether recordings are usable for calibration")
def _check(call: Callable[..., LogsCheck], *, as_json: AsJson = False) -> int:
    """Present the reports.

    Checked are clock, units, wrapped and clipped channels, spikes, motion, command-to-effort lag, and noise.

    Without --columns, the column map is `<log>.columns.yaml` or `columns.yaml` next to the recording; otherwise it
    follows from the format (ROS, LeRobot) or is the built-in map that matches the columns.

    exit code: 0 usable for calibration, 1 a defect prevents it or an encoder's zero has moved, 2 a recording cannot be
    read
    """
    with share_bar("checking") as progress:
        found = call(progress=progress)
    if as_json:
        print(json.dumps(_as_json(found), indent=2))
    else:
        _print_all(found)
    # Unreadable input is the worse result, even if another recording has a defect.
    return 2 if found.unreadable else 0 if found.usable and not any(zero.moved for zero in found.zeros) else 1


def _print_all(found: LogsCheck) -> None:
    from physai.twin.logs import lag_summary

    reports = found.reports
    for source, report in reports.items():
        print("\n".join(_text(report)))
        if source in found.pictures:
            print(f"  picture: {printable(found.pictures[source])}")
        print()
    for error in found.unreadable.values():
        print(styled("unreadable:", "red", sys.stdout), printable(error), "\n")
    if reports and not found.limits_checked and not all(report.log.limits_known for report in reports.values()):
        print("Robot limits were not checked; give --model to check them.")
    summary = lag_summary(lag for report in reports.values() for lag in report.lags)
    if summary is not None and len(reports) > 1:
        print(f"Command-to-effort lag: {1e3 * summary.mean_s:.1f} ms, 99 % within {1e3 * summary.p99_s:.1f} ms.")
    for zero in found.zeros:
        print(f"command minus position at rest, {'MOVED' if zero.moved else 'unchanged'}: {printable(zero.text)}")
    usable = sum(report.usable for report in reports.values())
    total = len(reports) + len(found.unreadable)
    print(f"{usable} of {total} recording{'s' if total != 1 else ''} usable for calibration")


def _text(report: QualityReport) -> list[str]:
    log = report.log
    verdict = "usable for calibration" if report.usable else "NOT usable for calibration"
    title = f"{printable(log.name)}: {verdict}"
    lines = [styled(title, "bold" if report.usable else "red", sys.stdout), f"  {printable(log.source)}"]
    if report.periods is not None:
        clock = report.periods
        lines.append(
            f"  {len(log.time)} samples in {log.time[-1] - log.time[0]:.4g} s, {clock.rate_hz:.4g} Hz "
            f"(period {1e3 * clock.median_s:.3f} ms, 99 % {1e3 * clock.p99_s:.3f}, most {1e3 * clock.max_s:.3f}), "
            f"{f'{log.command_kind} commands' if any(log.driven) else 'no commands'}"
        )
        lines += ["", _joint_table(report)] if log.joints else []
        lines += ["", *_base_lines(report)] if log.base is not None else []
    if report.findings:
        lines.append("")
    for finding in report.findings:
        label = styled(f"{finding.severity:<8}", _STYLES[finding.severity], sys.stdout)
        lines.append(f"  {label} {finding.check:<7} {printable(finding.message)}")
        if finding.advice:
            lines.append(f"{'':<19}→ {printable(finding.advice)}")
    return lines


def _joint_table(report: QualityReport) -> str:
    noise = report.noise
    stds = (None,) * 3 if noise is None else (noise.joint_pos_std, noise.joint_vel_std, noise.joint_effort_std)
    rows: list[tuple[str, ...]] = []
    for j, (joint, motion) in enumerate(zip(report.log.joints, report.motions, strict=True)):
        lag = report.lags[j]
        command = report.log.command[:, j]
        rows.append(
            (
                joint.name,
                f"{motion.lowest:.3g} … {motion.highest:.3g}",
                f"{motion.fastest:.3g}",
                f"{command.min():.3g} … {command.max():.3g}" if report.log.driven[j] else "-",
                *("-" if std is None else f"{std[j]:.2g}" for std in stds),
                "-"
                if lag is None
                else "not identifiable"
                if not lag.identified
                else f"{1e3 * lag.lag_s:.1f} ({1e3 * lag.lower_s:.1f} … {1e3 * lag.upper_s:.1f})",
            )
        )
    header = ("joint", "position", "speed", "command", "noise pos", "vel", "effort", "lag [ms] (95 %)")
    return f"{table(header, rows)}\n  {_UNITS}"


_UNITS = "rad, rad/s, N·m (slide joints: m, m/s, N); noise: standard deviation; lag: of effort behind effort commands"


def _base_lines(report: QualityReport) -> list[str]:
    base = _base_json(report)
    low, high = base["position_lowest_m"], base["position_highest_m"]
    reach = ", ".join(f"{axis} {first:.3g} … {last:.3g}" for axis, first, last in zip("xyz", low, high, strict=True))
    return [
        f"  base: {reach} m; turns by up to {base['turn_rad']:.3g} rad; noise {1e3 * base['position_noise_m']:.2g} mm, "
        f"{1e3 * base['rotation_noise_rad']:.2g} mrad"
    ]


def _base_json(report: QualityReport) -> dict[str, Any]:
    from physai.twin.logs.checks.base import base_summary
    from physai.twin.logs.checks.reading import sound_rows

    base = sound_rows(report.log).base
    return {} if base is None else asdict(base_summary(base))


def _as_json(found: LogsCheck) -> dict[str, Any]:
    from physai.twin.logs import lag_summary

    lag = lag_summary(lag for report in found.reports.values() for lag in report.lags)
    return {
        "usable": found.usable,
        "lag": None if lag is None else asdict(lag),
        "logs": [_log_json(report, found.pictures.get(source)) for source, report in found.reports.items()],
        "zeros": [{**asdict(zero), "moved": zero.moved} for zero in found.zeros],
        "unreadable": [{"source": source, "error": error} for source, error in found.unreadable.items()],
    }


def _log_json(report: QualityReport, picture: str | None) -> dict[str, Any]:
    log, noise = report.log, report.noise
    stds: dict[str, Any] = {}
    if noise is not None:
        stds = {
            "joint_pos": noise.joint_pos_std,
            "joint_vel": noise.joint_vel_std,
            "joint_effort": noise.joint_effort_std,
        }
    joints: list[dict[str, Any]] = []
    for j, (name, motion) in enumerate(zip(log.joint_names, report.motions, strict=False)):
        lag = report.lags[j]
        joints.append(
            {
                "name": name,
                "motion": asdict(motion),
                "noise_std": {key: None if std is None else float(std[j]) for key, std in stds.items()},
                "still_s": None if noise is None else float(noise.still_s[j]),
                "lag": None if lag is None else {**asdict(lag), "identified": lag.identified},
            }
        )
    return {
        "name": log.name,
        "source": log.source,
        "sha256": log.sha256,
        "usable": report.usable,
        "samples": len(log.time),
        "command_kind": log.command_kind,
        "notes": dict(log.notes),
        "periods": None if report.periods is None else asdict(report.periods),
        "joints": joints,
        **({} if log.base is None or report.periods is None else {"base": _base_json(report)}),
        "findings": [asdict(finding) for finding in report.findings],
        "picture": picture,
    }


command = noun("check recordings of a robot before calibrating a twin", {"check": _check})
"""The verb `logs`."""
