"""`physai sim exam open`: fixes what is judged, and draws the episodes on which it is judged."""

from __future__ import annotations

import argparse
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable
from physai.sdk.cli.command import CliCommand
from physai.sdk.cli.shared.key_files import KEYS_SHOWN, key_folder, load_key
from physai.sdk.cli.shared.passphrases import add_passphrase_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai sim exam`."""
    actions = parser.add_subparsers(dest="exam_action", metavar="ACTION", required=True)
    opening = actions.add_parser("open", help="sign what is judged, and draw the seeds of its episodes")
    opening.add_argument("policy", type=Path, metavar="POLICY", help="run folder or exported policy.onnx")
    opening.add_argument("--twin", type=Path, required=True, metavar="TWIN", help="twin.json of `physai sim calibrate`")
    for option, kind, text in (
        ("--task", str, "as for `physai sim validate`"),
        ("--robot", str, "as for `physai sim validate`"),
        ("--gates", Path, "gate settings (default: built in)"),
        ("--baseline", Path, "older policy that it is compared with"),
        ("--reference", Path, "policy that it was fine-tuned from (default: the one in its run folder)"),
    ):
        opening.add_argument(option, type=kind, help=text)
    opening.add_argument("--key", type=Path, metavar="FILE", help=f"default: {KEYS_SHOWN}/validator.key")
    opening.add_argument("-o", "--output", type=Path, metavar="FILE", default=Path("exam.json"))
    add_passphrase_argument(opening)
    opening.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Opens an exam, counts it in the validator's journal and writes its file."""
    from physai.gates.report.validation import ValidationOptions, open_validation
    from physai.gates.settings import GateSettings, load_gates
    from physai.sdk.base.files import require_replaceable, write_atomic
    from physai.sdk.signing.exam import JOURNAL_FILE, open_exam
    from physai.twin.model.twin import load_twin

    key = load_key(arguments.key or key_folder() / "validator.key", "validator", arguments)
    options = ValidationOptions(
        task=arguments.task,
        robot=arguments.robot,
        settings=GateSettings() if arguments.gates is None else load_gates(arguments.gates),
        baseline=arguments.baseline,
        reference=arguments.reference,
    )
    examined = open_validation(arguments.policy, load_twin(arguments.twin), options).examined
    journal = key_folder() / JOURNAL_FILE
    try:
        journal.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A file that cannot be written must cost no exam.
        require_replaceable(arguments.output)
        with tempfile.TemporaryFile(dir=arguments.output.parent):
            pass
        exam = open_exam(examined, key, journal, now=datetime.now(UTC))
        write_atomic(arguments.output, exam.encode())
    except OSError as error:
        raise PhysaiError(f"{arguments.output}: cannot be written: {error.strerror}") from None
    if arguments.json:
        print(json.dumps({"exam": str(arguments.output), **exam.facts.model_dump(mode="json")}))
        return 0
    print(printable(f"{arguments.output}: exam {exam.facts.number} under this contract and twin, {exam.facts.id[:12]}"))
    print(printable(f"next  physai sim validate {arguments.policy} --exam {arguments.output}, with the same options"))
    return 0


command = CliCommand(summary="open an exam, whose episodes nobody knows before", add_arguments=add_arguments, run=run)
"""The verb `sim exam`."""
