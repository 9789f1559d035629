"""`physai drift`: tells whether a robot is still the one that its twin describes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.compute.cli.progress_bars import share_bar
from physai.drift.watch import drift
from physai.sdk.base.terminal import printable, styled, table
from physai.sdk.cli.verb import AsJson, Option, verb

if TYPE_CHECKING:
    from physai.drift.report import DriftReport
    from physai.sdk.signing.ed25519 import SigningKey

_CODES = {"HOLDS": 0, "DRIFTED": 1, "NO EVIDENCE": 2}
_STYLES = {"HOLDS": "green", "DRIFTED": "red", "NO EVIDENCE": "yellow"}


@verb(drift, summary="tell whether a robot is still the one that its twin describes")
def command(
    call: Callable[..., DriftReport],
    *,
    report_to: Annotated[str | None, Option(metavar="FOLDER|URL")] = None,
    policy: Annotated[Path | None, Option(metavar="BUNDLE")] = None,
    recorded_on: Annotated[str | None, Option(metavar="ROBOT")] = None,
    key: Path | None = None,
    passphrase_file: Path | None = None,
    as_json: AsJson = False,
) -> int:
    """Present the answer.

    exit code: 0 HOLDS, 1 DRIFTED, 2 NO EVIDENCE or invalid input

    Args:
        report_to: sign the report, and file it in this folder, or at this service of `physai sim serve`.
        policy: bundle whose verdict the filed report concerns. None for the twin as such.
        recorded_on: the recorded robot, MODEL/UNIT, that the filed report is about. None for the one that the
            recordings name.
        key: key of the robot, an owner or a validator that signs the filed report. None for validator.key of
            ~/.config/physai/keys.
        passphrase_file: file whose first line is the passphrase of the key. None for a prompt.
    """
    # Before the recordings are judged, as a wrong passphrase is told at once.
    keys = [] if report_to is None else [_signing_key(key, passphrase_file)]
    # The matrices are small: threads of the linear algebra would cost several times the processor time that they take.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with share_bar("comparing with the twin") as progress:
        report = call(progress=progress)
    filed = None
    if report_to is not None:
        from physai.drift.filing import file_report

        filed = file_report(report, keys, report_to, robot=recorded_on, bundle=policy)
    if as_json:
        from physai.drift.report import report_record

        print(json.dumps(report_record(report), ensure_ascii=False))
    else:
        print(printable("\n".join(_text(report))))
        print(f"{styled(report.outcome, _STYLES[report.outcome], sys.stdout)}: {printable(report.reason)}")
        for step in report.steps:
            print(printable(f"  → {step.text}" + (f"\n    {step.command}" if step.command else "")))
    if filed is not None:
        print(printable(f"filed   {filed}"), file=sys.stderr)
    return _CODES[report.outcome]


def _signing_key(path: Path | None, passphrase_file: Path | None) -> SigningKey:
    """Return a key of whatever role: readers of the report know by their trust file who may report."""
    from physai.sdk.cli.shared.passphrases import passphrase_from
    from physai.sdk.signing.ed25519 import KeyFileError, load_private_key
    from physai.sdk.signing.files.user_keys import key_folder

    file = path or key_folder() / "validator.key"
    if not file.exists():
        raise KeyFileError(f"{file}: no such key; give `key` of the robot, or make keys with: physai keys init")
    return load_private_key(file, passphrase=passphrase_from(passphrase_file))


def _text(report: DriftReport) -> Iterator[str]:
    rows = [
        (
            one.name,
            one.text,
            f"{one.usable_s:.0f} s",
            f"{one.seen_from:.2g} {one.unit}" if one.watched else "too little motion",
        )
        for one in report.parameters
        if one.amounts
    ]
    if rows:
        yield table(("change", "difference from the twin, alone", "usable", "seen from"), rows)
    silent = [one.name for one in report.parameters if not one.amounts]
    if silent:
        yield f"no motion tells anything of {', '.join(silent)}"
    wrong = ", ".join(f"{seconds:.0f} s {reason}" for reason, seconds in report.unusable_s.items())
    yield f"{report.usable_s:.0f} s of {report.recorded_s:.0f} s usable" + (f"; not usable: {wrong}" if wrong else "")
    yield from (f"note: {remark}" for remark in report.remarks)
    if report.page is not None:
        yield f"report  {report.page}"
