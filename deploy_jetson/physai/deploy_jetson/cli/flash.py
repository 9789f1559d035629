"""`physai flash`: deploy a bundle to a robot or a fleet over ssh."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.deploy_jetson.update.flashing import FlashSettings, flash, flash_fleet
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable
from physai.sdk.cli.verb import AsJson, Option, verb

if TYPE_CHECKING:
    from physai.deploy_jetson.update.flash.deliver import FlashStep
    from physai.deploy_jetson.update.flash.target import Target


@verb(summary="deploy a bundle to a robot over ssh: send, install and activate it")
def command(
    host: Annotated[str | None, Option(word=True, metavar="[USER@]HOST[:PORT]")] = None,
    *,
    bundle: Annotated[str, Option(word=True, metavar="BUNDLE")],
    group: Annotated[Path | None, Option(metavar="FLEET")] = None,
    settings: Annotated[FlashSettings, Option(flatten=True)],
    as_json: AsJson = False,
) -> int:
    """Flash a robot or a fleet.

    exit code: 1 a robot went back, failed or was skipped, else 0

    Args:
        host: the robot, as for ssh.
        bundle: bundle file, or with --server its SHA-256 or 8 digits of it.
        group: YAML file of robots, canaries first.
    """
    from physai.deploy_jetson.cli.flash_text import Display, fleet_record, fleet_table, record, sentence

    if (host is None) == (group is None):
        raise PhysaiError("name one robot, or a fleet: physai flash HOST BUNDLE, physai flash --group FLEET BUNDLE")
    told = replace(settings, warn=_warn)
    with Display(sys.stderr, quiet=as_json) as display:
        if host is not None:

            def show(target: Target, step: FlashStep) -> None:
                display.show(step)

            done = flash(host, bundle, replace(told, progress=show))
            (report,) = done.robots
        else:
            shown = replace(told, begun=display.begin, progress=display.show_one, finished=display.finish)
            done, report = flash_fleet(group or "", bundle, shown), None
    if report is not None:
        print(json.dumps(record(report, done.upload), indent=2) if as_json else sentence(report, done.upload))
    else:
        print(json.dumps(fleet_record(done.robots, done.upload), indent=2) if as_json else fleet_table(done.robots))
    return 1 if any(report.is_failure or report.outcome == "skipped" for report in done.robots) else 0


def _warn(text: str) -> None:
    print(f"warning: {printable(text)}", file=sys.stderr, flush=True)
