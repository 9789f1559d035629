"""`physai import --doctor`: says what the file of somebody else's policy states, and what it leaves open."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from physai.foreign.diagnosis import diagnose
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, Option, verb

if TYPE_CHECKING:
    from physai.foreign.diagnosis import PolicyDiagnosis, Tensor


@verb(diagnose, summary="say what somebody else's policy states, and what it leaves open (--doctor)")
def command(
    call: Callable[[], PolicyDiagnosis], *, doctor: Annotated[bool, Option()] = False, as_json: AsJson = False
) -> int:
    """Present the diagnosis.

    So far, a policy that was trained elsewhere is diagnosed and not imported; --doctor says that you want that.

    exit code: 0 its graph is one that a policy may have, 1 it is not, 2 the file cannot be read

    Args:
        doctor: diagnose the file.
    """
    if not doctor:
        raise PhysaiError("policies from elsewhere are not imported yet; add --doctor to see what this file states")
    found = call()
    print(json.dumps(_as_json(found), indent=2) if as_json else printable("\n".join(_text(found))))
    return 0 if found.admitted else 1


def _as_json(found: PolicyDiagnosis) -> dict[str, object]:
    return {**asdict(found), "file": str(found.file), "admitted": found.admitted}


def _text(found: PolicyDiagnosis) -> Iterator[str]:
    rows = [
        ("file", f"{found.file} ({found.size_bytes} bytes, SHA-256 {found.sha256[:12]}…)"),
        (
            "format",
            f"ONNX, ir version {found.ir_version}, operator set {found.opset}, by {found.producer or 'unknown'}",
        ),
        ("inputs", ", ".join(map(_tensor, found.inputs))),
        ("outputs", ", ".join(map(_tensor, found.outputs))),
        ("operators", ", ".join(f"{count} {name}" for name, count in sorted(found.operators.items()))),
        ("graph", f"refused: {found.refused}" if found.refused else _admitted(found)),
    ]
    yield table(("what", "found"), rows, indent="")
    for title, lines in (
        ("the graph shows:", found.findings),
        ("contradictions:", found.contradictions),
        (
            "the file states, and nothing here has checked it:",
            [f"{key}: {value}" for key, value in found.stated.items()],
        ),
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
