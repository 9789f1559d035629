"""Sign a drift report, and file it in a folder or at a service."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from physai.drift.errors import DriftError
from physai.drift.report import LOG_E, NAMED, DriftReport, report_record

if TYPE_CHECKING:
    from physai.sdk.signing.ed25519 import SigningKey
    from physai.sdk.signing.status.drift_report import ReportPredicate

SIGNED_SUFFIX = ".report.json"
MAX_TEXT = 4000


def file_report(
    report: DriftReport,
    keys: Sequence[SigningKey],
    to: Path | str,
    *,
    robot: str | None = None,
    bundle: Path | str | None = None,
) -> str:
    """Sign a drift report and file it; a report moves no robot, and revokes nothing.

    Args:
        report: the monitor's answer.
        keys: key of the robot, an owner or a validator.
        to: folder, in which the whole report is written as well; or address of a service of `physai sim serve`, token
            in PHYSAI_TOKEN.
        robot: robot that the report is about, MODEL/UNIT. None for the unit that the recordings name.
        bundle: bundle whose verdict is concerned; None for the twin as such.

    Returns:
        The file, or the address that took the report.

    Raises:
        DriftError: no unit is known, or the folder cannot be written.
        ServiceRequestError: the service cannot be reached, or refuses the report.
        PhysaiError: the bundle cannot be read, or the robot's name is malformed.
    """
    from physai.sdk.base.files import oserror_as, write_atomic
    from physai.sdk.base.formats.canonical import sha256_hex
    from physai.sdk.base.service import Service
    from physai.sdk.evidence.origin import is_unit_of
    from physai.sdk.signing.status.drift_report import sign_report

    about = robot or report.unit
    if about is None or "/" not in about:
        raise DriftError("the recordings name no unit, and a report is about one: give `recorded_on` MODEL/UNIT")
    if not is_unit_of(about, report.robot):
        raise DriftError(f"`recorded_on` {about}: the recordings are of a {report.robot}; give {report.robot}/UNIT")
    everything = json.dumps(report_record(report), ensure_ascii=False, indent=2).encode()
    predicate = _predicate(report, about, bundle, sha256_hex(everything))
    data = sign_report(keys, predicate)
    if "://" in str(to):
        service = Service.parse(str(to))
        service.post(f"/v1/robots/{about}/reports", data)
        return service.url
    folder = Path(to)
    name = f"{about.replace('/', '-')}-{predicate.issued.replace(':', '')}-{sha256_hex(everything)[:8]}"
    with oserror_as(DriftError, f"{folder}: cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / f"{name}.drift.json", everything)
        write_atomic(folder / f"{name}{SIGNED_SUFFIX}", data)
    return str(folder / f"{name}{SIGNED_SUFFIX}")


def _predicate(report: DriftReport, robot: str, bundle: Path | str | None, evidence: str) -> ReportPredicate:
    from pydantic import ValidationError

    from physai.sdk.bundle.manifest import read_bundle
    from physai.sdk.evidence.verdict import utc_text
    from physai.sdk.signing.status.drift_report import ReportPredicate

    values = {"usable_s": report.usable_s, "recorded_s": report.recorded_s, LOG_E: report.log_e_value}
    values |= {f"{NAMED}{one.name}": one.amount for one in report.named}
    steps = "".join(f"\nnext: {step.text}" for step in report.steps)
    try:
        return ReportPredicate.model_validate(
            {
                "robot": robot,
                "issued": utc_text(datetime.now(UTC)),
                "finding": report.outcome,
                "bundle": None if bundle is None else read_bundle(bundle).id,
                "text": f"{report.reason}{steps}"[:MAX_TEXT],
                "values": {name: value for name, value in values.items() if math.isfinite(value)},
                "evidence": evidence,
            }
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise DriftError(f"{'.'.join(map(str, first['loc']))} {first['input']!r:.100}: {first['msg']}") from None
