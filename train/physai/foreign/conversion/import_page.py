"""Result of an import, and its page `import.md`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.sdk.contract.gaps import contract_lacks

if TYPE_CHECKING:
    from physai.foreign.conversion.parity import TargetParity
    from physai.sdk.contract.policy_contract import PolicyContract

MAX_SHOWN = 90
NEVER_STATED = (
    "frame of the angular velocity: taken as that of the base",
    "order of the quaternion and sign of gravity: the robot's IMU gives wxyz, and gravity points down",
    "what the policy observed before its first period: the first sample fills a history unless the family says so",
)
"""Conventions that hardly a family writes down; a policy that falls in the twin is to be checked for them first."""


@dataclass(frozen=True, kw_only=True)
class PolicyImport:
    """An imported policy."""

    folder: Path
    family: str
    contract: PolicyContract
    policy_sha256: str
    sources: Mapping[str, str]
    """Where each field of the description comes from."""
    values: Mapping[str, Any]
    changes: tuple[str, ...]
    """What was changed in the network's file to admit it."""
    notes: tuple[str, ...]
    """What was assumed about the robot."""
    unread: tuple[str, ...]
    """Statements of the files that were not read."""
    parity: TargetParity


def import_page(found: PolicyImport) -> str:
    """Write the page: each field with its source, what no file states, and what was changed."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: PolicyImport) -> Iterator[str]:
    parity = found.parity
    yield f"# {found.folder.name}: imported from {found.family}"
    yield ""
    yield f"Contract {found.contract.fingerprint[:12]}, policy.onnx {found.policy_sha256[:12]}."
    yield ""
    yield "| field | value | source |"
    yield "|---|---|---|"
    for name, value in found.values.items():
        yield f"| {name} | {_cell(json.dumps(value))} | {_cell(found.sources[name])} |"
    yield ""
    yield "## The graph"
    yield ""
    yield (
        f"In {parity.states} states of the twin its targets differ from the network's own by {parity.greatest:.2g} rad "
        f"at most. {parity.clipped} of {parity.targets} targets were beyond a joint's range and are clipped to it."
    )
    yield from _listed("Changed to admit the file", found.changes)
    never = NEVER_STATED if "first_fill" not in found.values else NEVER_STATED[:-1]
    yield from _listed("No file states", never)
    yield from _listed("In the files, and not read", found.unread)
    yield from _listed("Assumed about the robot", found.notes)
    yield from _listed("Protections that the contract lacks", contract_lacks(found.contract))


def _listed(title: str, lines: tuple[str, ...]) -> Iterator[str]:
    if lines:
        yield ""
        yield f"## {title}"
        yield ""
        yield from (f"- {line}" for line in lines)


def _cell(text: str) -> str:
    text = text.replace("|", "/").replace("\n", " ")
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
