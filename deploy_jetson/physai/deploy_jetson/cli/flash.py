"""`physai flash`: deploy a bundle to a robot or a fleet over ssh."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from physai.deploy_jetson.update.flash.bundle_upload import BundleUpload
    from physai.deploy_jetson.update.flash.deliver import Flashed, FlashOptions
    from physai.deploy_jetson.update.flash.installation_reports import InstallationReports
    from physai.deploy_jetson.update.flash.rollout import RobotReport
    from physai.deploy_jetson.update.flash.target import Target
    from physai.sdk.base.service import Service

MAX_PATIENCE_S = 3600.0


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("host", nargs="?", metavar="[USER@]HOST[:PORT]", help="the robot, as for ssh")
    parser.add_argument(
        "bundle", type=Path, metavar="BUNDLE", help="bundle file, or with --server its SHA-256 or 8 digits of it"
    )
    parser.add_argument("--group", type=Path, metavar="FLEET", help="YAML file of robots, canaries first")
    parser.add_argument(
        "--wait", action="store_true", help="wait until the robot commits or rolls back, and report why"
    )
    parser.add_argument(
        "--root", type=PurePosixPath, metavar="DIR", help="tree of slots on the robot (default: the robot's)"
    )
    parser.add_argument("--physai", metavar="COMMAND", help="command that runs physai on the robot (default: physai)")
    parser.add_argument(
        "--time",
        type=Path,
        metavar="FILE",
        help="statement of `physai keys time`, for a robot with an unreliable clock",
    )
    parser.add_argument(
        "--server",
        metavar="URL",
        help="service of `physai sim serve` that has the bundle, and is told what became of it; token in PHYSAI_TOKEN",
    )
    parser.add_argument("--retry", action="store_true", help="even if the robot rolled this bundle back before")
    parser.add_argument("--unsafe-no-verdict", action="store_true", help="without a verdict, if the owner allows it")
    parser.add_argument(
        "--patience",
        type=float,
        default=30.0,
        metavar="S",
        help="longest wait for another flash of the same robot (default: 30)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _run(arguments: argparse.Namespace) -> int:
    if (arguments.host is None) == (arguments.group is None):
        raise PhysaiError("name one robot, or a fleet: physai flash HOST BUNDLE, physai flash --group FLEET BUNDLE")
    if not 0.0 <= arguments.patience <= MAX_PATIENCE_S:
        raise PhysaiError(f"--patience must lie in 0 … {MAX_PATIENCE_S:g} s, got {arguments.patience:g}")
    from physai.deploy_jetson.update.flash.deliver import FlashOptions
    from physai.deploy_jetson.update.flash.installation_reports import InstallationReports
    from physai.sdk.base.service import Service

    service = None if arguments.server is None else Service.parse(arguments.server)
    upload = _load(arguments.bundle, service)
    options = FlashOptions(
        wait=arguments.wait,
        unsafe_no_verdict=arguments.unsafe_no_verdict,
        retry=arguments.retry,
        time=_statement(arguments.time),
        patience_s=arguments.patience,
    )
    flash = _flash_robot if arguments.group is None else _flash_fleet
    with InstallationReports(service, upload, warn=_warn) as reports:
        return flash(arguments, upload, options, reports)


def _warn(text: str) -> None:
    print(f"warning: {printable(text)}", file=sys.stderr, flush=True)


def _load(bundle: Path, service: Service | None) -> BundleUpload:
    """Reads a bundle file, or fetches a registered bundle."""
    from physai.deploy_jetson.update.flash.bundle_upload import BundleUpload
    from physai.sdk.bundle.registered import fetch_bundle, is_digest_prefix

    name = str(bundle)
    if bundle.exists() or not is_digest_prefix(name):
        return BundleUpload.load(bundle)
    if service is None:
        raise PhysaiError(f"{name}: no such file; if it is the SHA-256 of a registered bundle, add --server URL")
    return BundleUpload.open(fetch_bundle(service, name), source=name)


def _flash_robot(
    arguments: argparse.Namespace, upload: BundleUpload, options: FlashOptions, reports: InstallationReports
) -> int:
    import asyncio

    from physai.deploy_jetson.cli.flash_text import Display, record, sentence
    from physai.deploy_jetson.update.flash.deliver import flash
    from physai.deploy_jetson.update.flash.rollout import RobotReport
    from physai.deploy_jetson.update.flash.target import Target

    target = Target.parse(arguments.host, root=arguments.root, physai=arguments.physai or "physai")
    with Display(sys.stderr, quiet=arguments.json) as display:
        try:
            flashed = asyncio.run(flash(target, upload, options, display.show))
        except PhysaiError as error:
            reports.add(RobotReport(target, "failed", str(error)))
            raise
    report = RobotReport(target, flashed.outcome, flashed.reason, flashed=flashed)
    reports.add(report)
    print(json.dumps(record(report, upload), indent=2) if arguments.json else sentence(report, upload))
    return 1 if report.is_failure else 0


def _statement(path: Path | None) -> str:
    """Read a signed time statement; empty without a file."""
    from physai.deploy_jetson.update.flash.protocol import MAX_TEXT
    from physai.sdk.base.files import read_plain

    if path is None:
        return ""
    try:
        data = read_plain(path, limit=MAX_TEXT)
    except OSError as error:
        raise PhysaiError(f"--time {path}: cannot be read: {error.strerror}") from None
    # The statement becomes one line of the protocol.
    if not len(data) <= MAX_TEXT or not data.isascii():
        raise PhysaiError(f"--time {path}: no statement of `physai keys time`, or one of more than {MAX_TEXT} bytes")
    return data.decode("ascii").rstrip("\n")


def _flash_fleet(
    arguments: argparse.Namespace, upload: BundleUpload, options: FlashOptions, installations: InstallationReports
) -> int:
    import asyncio
    from dataclasses import replace

    from physai.deploy_jetson.cli.flash_text import Display, fleet_record, fleet_table
    from physai.deploy_jetson.update.flash.deliver import flash
    from physai.deploy_jetson.update.flash.fleet import load_fleet
    from physai.deploy_jetson.update.flash.rollout import roll_out

    fleet = load_fleet(arguments.group, root=arguments.root, physai=arguments.physai)
    with Display(sys.stderr, quiet=arguments.json) as display:

        async def flash_one(target: Target, wait: bool) -> Flashed:
            display.begin(target)
            return await flash(target, upload, replace(options, wait=wait), display.show_for(target))

        def finish(report: RobotReport) -> None:
            display.finish(report, upload)
            installations.add(report)

        reports = asyncio.run(roll_out(fleet, flash_one, wait=options.wait, tell=finish))
    print(json.dumps(fleet_record(reports, upload), indent=2) if arguments.json else fleet_table(reports))
    return 1 if any(report.is_failure or report.outcome == "skipped" for report in reports) else 0


command = CliCommand(
    summary="deploy a bundle to a robot over ssh: send, install and activate it", add_arguments=_add_arguments, run=_run
)
