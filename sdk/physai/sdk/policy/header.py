"""Header of an ONNX policy: its metadata, and the names and sizes of its inputs and outputs.

Inputs are the sensor and command fields of `graph_interface`, then one `state.NAME` per memory; outputs are the joint
commands, then `next.NAME`. All are float32 of shape (n, size) for any n. Every memory starts at zero; the caller feeds
each `next.NAME` back as `state.NAME`.
"""

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.file_names import GOLDEN_FILE as GOLDEN_FILE
from physai.sdk.base.file_names import MAX_POLICY_BYTES as MAX_POLICY_BYTES
from physai.sdk.base.file_names import POLICY_FILE as POLICY_FILE
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.contract.interface import graph_interface, refuse_plans
from physai.sdk.contract.io import ONNX_METADATA_KEY, parse_contract
from physai.sdk.contract.policy_contract import PolicyContract

FORMAT_VERSION = "1"
"""Changes when an older reader could misunderstand a newer file."""

FORMAT_KEY = "physai.format"
FINGERPRINT_KEY = "physai.fingerprint"
STATE_KEY = "physai.state"
PROVENANCE_PREFIX = "physai.provenance."

STATE_PREFIX = "state."
NEXT_PREFIX = "next."

MAX_STATE_CHARS = 1 << 16
MAX_STATES = 128
"""Maximum number of memories: one per observation term and a few more."""

MAX_STATE_SIZE = 1_000_000
MAX_PROVENANCE = 128


class PolicyError(PhysaiError):
    """A policy file is damaged, of another format, or used in an unsupported way."""


@dataclass(frozen=True)
class PolicyHeader:
    """Contract, memories and provenance of an exported policy."""

    contract: PolicyContract
    state_sizes: dict[str, int]
    """Width of each memory of the graph, in the order of its inputs."""
    provenance: dict[str, str] = field(default_factory=dict[str, str])
    """Origin of the policy: run, commit, seed, versions."""

    def __post_init__(self) -> None:
        """Check that names are unique; raises PolicyError, or ContractError for a policy that plans."""
        refuse_plans(self.contract)
        interface = graph_interface(self.contract)
        names = [*interface.sensors, *interface.commands, *(STATE_PREFIX + name for name in self.state_sizes)]
        names += [*interface.targets, *(NEXT_PREFIX + name for name in self.state_sizes)]
        for name in names:
            if names.count(name) > 1:
                raise PolicyError(
                    f"the graph would have two inputs or outputs named {name!r}; rename the sensor or command field"
                )

    @property
    def inputs(self) -> dict[str, int]:
        """Names and widths of the graph's inputs, in order."""
        interface = graph_interface(self.contract)
        return {**interface.sensors, **interface.commands, **_prefixed(STATE_PREFIX, self.state_sizes)}

    @property
    def outputs(self) -> dict[str, int]:
        """Names and widths of the graph's outputs, in order."""
        return {**graph_interface(self.contract).targets, **_prefixed(NEXT_PREFIX, self.state_sizes)}

    def metadata(self) -> dict[str, str]:
        """Return the metadata entries of the ONNX file.

        Raises:
            PolicyError: there are more provenance entries than a reader accepts.
        """
        if len(self.provenance) > MAX_PROVENANCE:
            raise PolicyError(f"{len(self.provenance)} provenance entries, at most {MAX_PROVENANCE} fit a policy file")
        return {
            FORMAT_KEY: FORMAT_VERSION,
            FINGERPRINT_KEY: self.contract.fingerprint,
            ONNX_METADATA_KEY: canonical_json(self.contract).decode(),
            STATE_KEY: json.dumps(self.state_sizes),
            **{PROVENANCE_PREFIX + key: value for key, value in sorted(self.provenance.items())},
        }


def _prefixed(prefix: str, sizes: Mapping[str, int]) -> dict[str, int]:
    return {prefix + name: size for name, size in sizes.items()}


def parse_header(metadata: Mapping[str, str], *, source: str) -> PolicyHeader:
    """Parse the header from the metadata of an ONNX file.

    Args:
        metadata: metadata entries of the file.
        source: origin of the file, for messages.

    Raises:
        PolicyError: an entry is missing or malformed, the format is unsupported, or the fingerprint does not match.
        ContractError: the contract is malformed.
    """
    version = _entry(metadata, FORMAT_KEY, source)
    if version != FORMAT_VERSION:
        raise PolicyError(
            f"{source}: policy format {reprlib.repr(version)}, this physai reads {FORMAT_VERSION!r}; export the run "
            "again with this version, or upgrade physai-sdk here"
        )
    contract = parse_contract(_entry(metadata, ONNX_METADATA_KEY, source), source=source)
    fingerprint = _entry(metadata, FINGERPRINT_KEY, source)
    if fingerprint != contract.fingerprint:
        raise PolicyError(
            f"{source}: states the fingerprint {reprlib.repr(fingerprint)}, but its contract has "
            f"{contract.fingerprint}; one of the two was changed after the export"
        )
    provenance = {
        key.removeprefix(PROVENANCE_PREFIX): value
        for key, value in metadata.items()
        if key.startswith(PROVENANCE_PREFIX)
    }
    if len(provenance) > MAX_PROVENANCE:
        raise PolicyError(f"{source}: {len(provenance)} provenance entries, at most {MAX_PROVENANCE} are allowed")
    state = _parse_state(_entry(metadata, STATE_KEY, source), source)
    return PolicyHeader(contract, state, provenance)


def _entry(metadata: Mapping[str, str], key: str, source: str) -> str:
    if key not in metadata:
        keys = ", ".join(map(reprlib.repr, list(metadata)[:20])) or "none"
        raise PolicyError(f"{source}: not an exported policy: no metadata entry {key!r}; entries: {keys}")
    return metadata[key]


def _parse_state(text: str, source: str) -> dict[str, int]:
    """Parse memory sizes from JSON such as `{"started": 1, "hidden": 64}`."""
    if not len(text) <= MAX_STATE_CHARS:
        raise PolicyError(f"{source}: {STATE_KEY} has {len(text)} characters, at most {MAX_STATE_CHARS} are allowed")
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"{source}: {STATE_KEY} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise PolicyError(f"{source}: {STATE_KEY} is not a JSON object, got {reprlib.repr(document)}")
    sizes = cast("dict[str, Any]", document)
    if not len(sizes) <= MAX_STATES:
        raise PolicyError(f"{source}: {STATE_KEY} names {len(sizes)} memories, at most {MAX_STATES} are allowed")
    for name, size in sizes.items():
        if type(size) is not int or not 1 <= size <= MAX_STATE_SIZE:
            raise PolicyError(
                f"{source}: {STATE_KEY}: {reprlib.repr(name)} has size {reprlib.repr(size)}, expected a whole number "
                f"from 1 to {MAX_STATE_SIZE}"
            )
    return sizes
