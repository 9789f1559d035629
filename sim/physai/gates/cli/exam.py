"""`physai sim exam open`: fixes what is judged, and draws the episodes on which it is judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from physai.gates.report.exam_opening import open_exam
from physai.sdk.base.terminal import printable
from physai.sdk.cli.shared.key_files import key_of_role
from physai.sdk.cli.verb import AsJson, noun, verb

if TYPE_CHECKING:
    from physai.sdk.signing.exam import Exam


@verb(open_exam, summary="sign what is judged, and draw the seeds of its episodes")
def _open(
    call: Callable[..., Exam],
    *,
    policy: Path,
    out: Path,
    key: Path | None = None,
    passphrase_file: Path | None = None,
    as_json: AsJson = False,
) -> int:
    """Present the exam.

    Args:
        key: validator's key. None for ~/.config/physai/keys/validator.key.
        passphrase_file: file whose first line is the passphrase of the key. None for a prompt.
    """
    facts = call(key=key_of_role("validator", key, passphrase_file)).facts
    if as_json:
        print(json.dumps({"exam": str(out), **facts.model_dump(mode="json")}))
        return 0
    print(printable(f"{out}: exam {facts.number} under this contract and twin, {facts.id[:12]}"))
    print(printable(f"next  physai sim validate {policy} --exam {out}, with the same options"))
    return 0


command = noun("open an exam, which draws its episodes only then", {"open": _open})
"""The verb `sim exam`."""
