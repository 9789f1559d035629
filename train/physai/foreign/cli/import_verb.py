"""`physai import`: makes a run folder of a policy that was trained elsewhere, or says what its file states."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.compute.cli.progress_bars import share_bar
from physai.foreign.body.diagnosis import diagnose
from physai.foreign.cli.template import write_template
from physai.foreign.errors import ForeignPolicyError
from physai.foreign.importing import import_policy
from physai.sdk.base.file_names import IMPORT_REPORT_FILE
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, Option, verb

if TYPE_CHECKING:
    from physai.foreign.body.diagnosis import PolicyDiagnosis, Tensor
    from physai.foreign.conversion.import_page import PolicyImport


@verb(import_policy, summary="import a policy that was trained elsewhere")
def command(
    call: Callable[..., PolicyImport],
    *,
    policy: Path,
    settings: Mapping[str, object] | None = None,
    doctor: Annotated[bool, Option()] = False,
    new: Annotated[bool, Option()] = False,
    as_json: AsJson = False,
) -> int:
    """Write a run folder like that of a training run: one graph with a contract, which eval, validate and pack take.

    What no file states is asked for, on a terminal by a question, elsewhere by the name of its setting, and nothing is
    guessed; import.md in the folder lists each field with its source.

    exit code: 0 it is imported, or its graph is one that a policy may have (--doctor); 1 it is not; 2 bad input

    Args:
        doctor: only say what the file of a policy states and what it leaves open.
        new: only write FILE, a description of an example with a comment for each key, to be filled in.
    """
    if new:
        write_template(policy)
        print(f"wrote {policy}; fill it in, and import it: physai import {policy} --model ROBOT")
        return 0
    if doctor:
        if settings or policy.suffix.lower() in (".yaml", ".yml"):
            said = f"{policy}: --doctor reads a network's file alone, no description and no --set"
            raise ForeignPolicyError(f"{said}; an import says what they leave open: physai import {policy}")
        found = diagnose(policy)
        print(json.dumps(_as_json(found), indent=2) if as_json else printable("\n".join(_text(found))))
        return 0 if found.admitted else 1
    with ExitStack() as stack:
        # The bar begins after the questions, which it would overwrite.
        bars: list[Callable[[float], None]] = []

        def progress(share: float) -> None:
            if not bars:
                bars.append(stack.enter_context(share_bar(f"importing {policy.name}")))
            bars[0](share)

        made = call(progress=progress, ask=None if as_json or not sys.stdin.isatty() else _ask)
    print(json.dumps(_record(made), indent=2) if as_json else printable("\n".join(_said(made))))
    return 0


def _ask(name: str, meaning: str) -> str:
    print(f"no file states {name}: {meaning}", file=sys.stderr)
    try:
        return input(f"{name}, as JSON or text (empty to give up): ")
    except EOFError:
        return ""


def _record(made: PolicyImport) -> dict[str, object]:
    return {
        "folder": str(made.folder),
        "family": made.family,
        "fingerprint": made.contract.fingerprint,
        "policy_sha256": made.policy_sha256,
        "sources": dict(made.sources),
        "changes": list(made.changes),
        "robot": list(made.notes),
        "parity": asdict(made.parity),
    }


def _said(made: PolicyImport) -> Iterator[str]:
    action, parity = made.contract.action.terms[0], made.parity
    yield f"imported from {made.family}: {made.contract.observation_size} numbers seen, {len(action.joints)} joints"
    yield f"targets differ from the network's own by {parity.greatest:.2g} rad at most, in {parity.states} states"
    if parity.clipped:
        yield f"{parity.clipped} of {parity.targets} targets are beyond a joint's range and clipped to it"
    yield f"what stands where, and what no file states: {made.folder / IMPORT_REPORT_FILE}"
    yield f"next: physai eval {made.folder}"


def _as_json(found: PolicyDiagnosis) -> dict[str, object]:
    return {**asdict(found), "file": str(found.file), "admitted": found.admitted}


def _text(found: PolicyDiagnosis) -> Iterator[str]:
    made = f"ONNX, ir version {found.ir_version}, operator set {found.opset}, by {found.producer or 'unknown'}"
    rows = [
        ("file", f"{found.file} ({found.size_bytes} bytes, SHA-256 {found.sha256[:12]}…)"),
        ("format", made),
        ("inputs", ", ".join(map(_tensor, found.inputs))),
        ("outputs", ", ".join(map(_tensor, found.outputs))),
        ("operators", ", ".join(f"{count} {name}" for name, count in sorted(found.operators.items()))),
        ("graph", f"refused: {found.refused}" if found.refused else _admitted(found)),
    ]
    yield table(("what", "found"), rows, indent="")
    stated = [f"{key}: {value}" for key, value in found.stated.items()]
    for title, lines in (
        ("the graph shows:", found.findings),
        ("contradictions:", found.contradictions),
        ("the file states, and nothing here has checked it:", stated),
        ("this file does not state:", found.left_open),
    ):
        if lines:
            yield f"\n{title}"
            yield from (f"  {line}" for line in lines)


def _tensor(tensor: Tensor) -> str:
    return f"{tensor.name} {list(tensor.shape)}"


def _admitted(found: PolicyDiagnosis) -> str:
    changed = f" after {'; '.join(found.changes)}" if found.changes else " as it is"
    return f"admitted{changed}; computes what the file does within {found.parity:.1g}"
