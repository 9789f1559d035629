"""`physai policy audit`: compares a deployment's own log with a policy's contract."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from physai.foreign.auditing.audit import audit
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, verb

if TYPE_CHECKING:
    from physai.foreign.auditing.findings import PolicyAudit


@verb(audit, summary="compare a deployment's own log with a policy's contract")
def command(call: Callable[[], PolicyAudit], *, as_json: AsJson = False) -> int:
    """Print a line for each term of the observation, the targets, the gains and the period.

    exit code: 0 nothing differs, 1 something does or the log has no observation, 2 the log or the policy cannot be read
    """
    found = call()
    record = {"log": str(found.log), "fingerprint": found.fingerprint, "rows": found.rows, "agrees": found.agrees}
    if as_json:
        print(json.dumps({**record, "findings": [asdict(finding) for finding in found.findings]}, indent=2))
    else:
        rows = [
            (one.part, one.outcome.upper() if one.outcome == "differs" else one.outcome, one.text or "-")
            for one in found.findings
        ]
        print(printable(table(("part", "outcome", "what"), rows, indent="")))
    return 0 if found.agrees else 1
