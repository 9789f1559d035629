"""`physai drift`: tells whether a robot is still the one that its twin describes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from physai.compute.cli.progress_bars import share_bar
from physai.drift.watch import drift
from physai.sdk.base.terminal import printable, styled, table
from physai.sdk.cli.verb import AsJson, verb

if TYPE_CHECKING:
    from physai.drift.report import DriftReport

_CODES = {"HOLDS": 0, "DRIFTED": 1, "NO EVIDENCE": 2}
_STYLES = {"HOLDS": "green", "DRIFTED": "red", "NO EVIDENCE": "yellow"}


@verb(drift, summary="tell whether a robot is still the one that its twin describes")
def command(call: Callable[..., DriftReport], *, as_json: AsJson = False) -> int:
    """Present the answer.

    exit code: 0 HOLDS, 1 DRIFTED, 2 NO EVIDENCE or invalid input
    """
    # The matrices are small: threads of the linear algebra would cost several times the processor time that they take.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with share_bar("comparing with the twin") as progress:
        report = call(progress=progress)
    if as_json:
        from physai.drift.report import report_record

        print(json.dumps(report_record(report), ensure_ascii=False))
    else:
        print(printable("\n".join(_text(report))))
        print(f"{styled(report.outcome, _STYLES[report.outcome], sys.stdout)}: {printable(report.reason)}")
        for step in report.steps:
            print(printable(f"  → {step.text}" + (f"\n    {step.command}" if step.command else "")))
    return _CODES[report.outcome]


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
