"""Open an exam: sign what is judged, and draw the episodes on which it is judged."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.gates.report.validation_options import ValidationOptions
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.gates.settings import GateSettings
    from physai.sdk.signing.ed25519 import SigningKey
    from physai.sdk.signing.exam import Exam
    from physai.twin.model.twin import Twin


def open_exam(
    policy: Path | str,
    *,
    twin: Annotated[Path | str, Option(metavar="TWIN")] | Twin,
    key: SigningKey,
    task: str | Path | None = None,
    model: Annotated[Path | str | None, Option(old=("--robot",))] = None,
    gates: Annotated[Path | str | None, Option(metavar="YAML")] | GateSettings = None,
    baseline: Annotated[Path | str | None, Option(metavar="POLICY")] = None,
    reference: Annotated[Path | str | None, Option(metavar="POLICY")] = None,
    out: Annotated[Path | str, Option(flags=("-o",), old=("--output",))] = Path("exam.json"),
) -> Exam:
    """Sign what is judged, draw the seeds of its episodes, and write both as an exam file.

    The exam is counted in the journal in the user's folder of keys.

    Args:
        policy: run folder or exported policy.onnx.
        twin: twin.json of `physai sim calibrate`.
        key: validator's key that signs the exam.
        task: as for `physai sim validate`.
        model: as for `physai sim validate`.
        gates: gate settings. None for the built-in ones.
        baseline: older policy that it is compared with.
        reference: policy that it was fine-tuned from. None for the one in its run folder.
        out: file to write.

    Returns:
        The exam.

    Raises:
        PhysaiError: the policy or the twin is unusable, or a file cannot be written.
    """
    from physai.gates.report.validation import open_validation
    from physai.sdk.base.files import require_replaceable, write_atomic
    from physai.sdk.signing.exam import JOURNAL_FILE
    from physai.sdk.signing.exam import open_exam as draw_exam
    from physai.sdk.signing.files.user_keys import key_folder

    options = ValidationOptions(task=task, model=model, gates=gates, baseline=baseline, reference=reference)
    examined = open_validation(Path(policy), twin, options).examined
    file, journal = Path(out), key_folder() / JOURNAL_FILE
    try:
        journal.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A file that cannot be written must cost no exam.
        require_replaceable(file)
        with tempfile.TemporaryFile(dir=file.parent):
            pass
        exam = draw_exam(examined, key, journal, now=datetime.now(UTC))
        write_atomic(file, exam.encode())
    except OSError as error:
        raise PhysaiError(f"{file}: cannot be written: {error.strerror}") from None
    return exam
