"""`physai sim renew`: from a drift to a new twin, and to a new or revoked verdict."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from physai.drift.renewal.renew import renew
from physai.sdk.base.terminal import printable, say_on_stderr, styled
from physai.sdk.cli.shared.options import ValidatorSigning
from physai.sdk.cli.verb import AsJson, Option, verb

if TYPE_CHECKING:
    from physai.drift.renewal.renew import Renewal

_CODES = {"HOLDS": 0, "PASS": 0, "FAIL": 1, "INCONCLUSIVE": 2, "NO EVIDENCE": 2}
_STYLES = {"HOLDS": "green", "PASS": "green", "FAIL": "red", "INCONCLUSIVE": "yellow", "NO EVIDENCE": "yellow"}
_WORDS = {
    "HOLDS": "nothing is renewed, and nothing was written",
    "NO EVIDENCE": "nothing is renewed, and nothing was written",
    "PASS": "the same policy passes in the new twin",
    "FAIL": "the same policy fails in the new twin",
    "INCONCLUSIVE": "the same policy does not pass in the new twin",
}


@verb(renew, summary="recalibrate a twin after a drift, judge a policy again, and sign or revoke its verdict")
def command(
    call: Callable[..., Renewal],
    *,
    signing: Annotated[ValidatorSigning, Option(flatten=True)],
    as_json: AsJson = False,
) -> int:
    """Present the new verdict and the files.

    exit code: 0 HOLDS or a new PASS, 1 FAIL, 2 NO EVIDENCE, INCONCLUSIVE or invalid input
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    found = call(key=signing.signing_key(), say=say_on_stderr)
    files = {name: getattr(found, name) for name in ("folder", "twin", "bundle", "status")}
    if as_json:
        record = {"outcome": found.outcome, "reason": found.reason, "command": found.command}
        verdict = None if found.verdict is None else found.verdict.model_dump(mode="json")
        paths = {name: None if path is None else str(path) for name, path in files.items()}
        print(json.dumps({**record, **paths, "verdict": verdict}, ensure_ascii=False))
        return _CODES[found.outcome]
    for name, path in files.items():
        if path is not None:
            print(printable(f"{name:<8}{path}"))
    if found.verdict is not None:
        from physai.gates.report.summary import reasons

        for gate in reasons(found.verdict).blocking:
            print(printable(f"{gate.gate}: {gate.message}\n  → {gate.next_step}"))
    outcome = styled(found.outcome, _STYLES[found.outcome], sys.stdout)
    print(f"{outcome}: {_WORDS[found.outcome]}; {printable(found.reason)}")
    if found.command:
        print(printable(f"  → {found.command}"))
    return _CODES[found.outcome]
