"""`physai sim drift-fleet`: which robots of a fleet have changed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from physai.drift.fleet import fleet_drift
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, verb

if TYPE_CHECKING:
    from physai.drift.fleet import FleetDrift, FleetRobot


@verb(fleet_drift, summary="tell which robots of a fleet have changed, from their drift reports")
def command(call: Callable[..., FleetDrift], *, as_json: AsJson = False) -> int:
    """Present the robots, those that changed first.

    exit code: 0 no robot changed, 1 some did, 2 invalid input
    """
    found = call()
    if as_json:
        record = {"false_share": found.false_share, "robots": [_record(one) for one in found.robots]}
        print(json.dumps(record, ensure_ascii=False))
    else:
        print(printable(table(("robot", "", "e-value", "alone", "explained by"), [_row(one) for one in found.robots])))
        print(
            f"{len(found.changed)} of {len(found.robots)} robots changed; of robots named so, at most "
            f"{found.false_share:.0%} are expected to be unchanged"
        )
        unsigned = sum(not one.signed for one in found.robots)
        if unsigned:
            print(f"note: {unsigned} reports are not signed: who wrote them is not known")
    return 1 if found.changed else 0


def _row(one: FleetRobot) -> tuple[str, ...]:
    # Powers of ten: e-values of long recordings exceed the largest float.
    size = f"10^{one.log_e_value / math.log(10.0):.1f}" if math.isfinite(one.log_e_value) else "0"
    return one.robot, "CHANGED" if one.changed else "", size, one.outcome, ", ".join(one.parameters)


def _record(one: FleetRobot) -> dict[str, object]:
    return {
        "robot": one.robot,
        "changed": one.changed,
        "log_e_value": one.log_e_value if math.isfinite(one.log_e_value) else None,
        "outcome": one.outcome,
        "parameters": list(one.parameters),
        "text": one.text,
        "signed": one.signed,
        "file": str(one.file),
    }
