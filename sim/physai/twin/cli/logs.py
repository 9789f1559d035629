"""`physai logs`: checks recordings of a robot before a twin is calibrated on them."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, styled, table
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from physai.sdk.contract.robot import RobotSpec
    from physai.twin.logs.quality import QualityReport

_CHECK = """\
Check recordings: clock, units, wrapped and clipped channels, spikes, motion, command-to-effort lag, noise.

FILE is CSV, JSON (both also gzipped), Parquet, MCAP, or the folder of a ROS 2 bag; FILE#3 is its episode 3.

Without --columns, the column map is `<log>.columns.yaml` or `columns.yaml` next to the recording; otherwise it follows
from the format (ROS, LeRobot) or is the built-in map that matches the columns.

exit code: 0 usable for calibration, 1 a defect prevents it, 2 a recording cannot be read
"""

_STYLES = {"defect": "red", "warning": "bold", "note": "dim"}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="check whether recordings are usable for calibration",
        description=_CHECK,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument("files", metavar="FILE", nargs="+", help="recordings")
    check.add_argument("--robot", metavar="NAME|FILE", help="robot with joints and limits (default: the column map's)")
    check.add_argument("--columns", metavar="YAML", type=Path, help="column map for all recordings")
    check.add_argument("--json", action="store_true", help="print JSON")
    check.add_argument(
        "--picture",
        metavar="PNG",
        type=Path,
        help="plot the recordings; several files get the recording's name as suffix",
    )


def _run(arguments: argparse.Namespace) -> int:
    from physai.twin.logs.reader import all_episodes

    if arguments.columns is not None and not arguments.columns.is_file():
        raise PhysaiError(f"{arguments.columns}: no such column map")
    if arguments.picture is not None:
        _require_picture_path(arguments.picture)
    fixed = _robot(arguments.robot) if arguments.robot else None
    sources: list[str] = []
    unreadable: dict[str, str] = {}
    for file in arguments.files:
        try:
            sources += all_episodes([file])
        except PhysaiError as error:
            unreadable[file] = str(error)
    reports = _check_all(sources, fixed, arguments.columns, unreadable)
    pictures = _draw(reports, arguments.picture) if arguments.picture is not None else {}
    if arguments.json:
        print(json.dumps(_as_json(reports, unreadable, pictures), indent=2))
    else:
        _print_all(reports, unreadable, pictures, limits=fixed is not None)
    # Unreadable input is the worse result, even if another recording has a defect.
    if unreadable:
        return 2
    return 0 if all(report.usable for report in reports.values()) else 1


def _check_all(
    sources: list[str], fixed: RobotSpec | None, columns: Path | None, unreadable: dict[str, str]
) -> dict[str, QualityReport]:
    """Checks each recording; errors of those that cannot be read go into `unreadable`."""
    from rich.console import Console
    from rich.progress import track

    from physai.twin.logs.quality import check_raw
    from physai.twin.logs.reader import log_names, read_raw, robot_of

    reports: dict[str, QualityReport] = {}
    quiet = len(sources) < 2 or not sys.stderr.isatty()
    for source in track(sources, "checking", console=Console(stderr=True), disable=quiet, transient=True):
        try:
            named = None if fixed is not None else robot_of(source, column_map=columns)
            robot = fixed if named is None else _robot(named)
            reports[source] = check_raw(read_raw(source, robot, column_map=columns))
        except PhysaiError as error:
            unreadable[source] = str(error)
    # Names depend on all recordings, so they are known only after the last.
    for source, name in zip(reports, log_names(list(reports)) if reports else [], strict=True):
        reports[source] = replace(reports[source], log=replace(reports[source].log, name=name))
    return reports


def _robot(name: str) -> RobotSpec:
    from physai.sim.robots import load_robot

    return load_robot(name).spec


def _require_picture_path(path: Path) -> None:
    """Raises PhysaiError if the picture cannot be written, before any slow work."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise PhysaiError(f"{path}: the file name must end in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise PhysaiError(f"{path}: folder {path.parent} does not exist")


def _draw(reports: dict[str, QualityReport], path: Path) -> dict[str, str]:
    """Plots each recording; returns the picture's path by recording."""
    from physai.twin.logs.picture import draw

    drawn: dict[str, str] = {}
    for source, report in reports.items():
        name = re.sub(r"[^A-Za-z0-9_.\-]+", "-", report.log.name)
        target = path if len(reports) == 1 else path.with_name(f"{path.stem}-{name}{path.suffix}")
        draw(report, target)
        drawn[source] = str(target)
    return drawn


def _print_all(
    reports: dict[str, QualityReport], unreadable: dict[str, str], pictures: dict[str, str], *, limits: bool
) -> None:
    from physai.twin.logs import lag_summary

    for source, report in reports.items():
        print("\n".join(_text(report)))
        if source in pictures:
            print(f"  picture: {printable(pictures[source])}")
        print()
    for error in unreadable.values():
        print(styled("unreadable:", "red", sys.stdout), printable(error), "\n")
    if reports and not limits and not all(report.log.limits_known for report in reports.values()):
        print("Robot limits were not checked; give --robot to check them.")
    summary = lag_summary(lag for report in reports.values() for lag in report.lags)
    if summary is not None and len(reports) > 1:
        print(f"Command-to-effort lag: {1e3 * summary.mean_s:.1f} ms, 99 % within {1e3 * summary.p99_s:.1f} ms.")
    usable = sum(report.usable for report in reports.values())
    total = len(reports) + len(unreadable)
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


def _as_json(reports: dict[str, QualityReport], unreadable: dict[str, str], pictures: dict[str, str]) -> dict[str, Any]:
    from physai.twin.logs import lag_summary

    lag = lag_summary(lag for report in reports.values() for lag in report.lags)
    return {
        "usable": not unreadable and all(report.usable for report in reports.values()),
        "lag": None if lag is None else asdict(lag),
        "logs": [_log_json(report, pictures.get(source)) for source, report in reports.items()],
        "unreadable": [{"source": source, "error": error} for source, error in unreadable.items()],
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


command = CliCommand(
    summary="check recordings of a robot before calibrating a twin", add_arguments=_add_arguments, run=_run
)
"""The verb `logs`."""
