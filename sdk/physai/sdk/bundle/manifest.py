"""Bundles: everything a robot needs to run one policy, in one file whose every byte is accounted for.

    manifest.json       size and SHA-256 of every member but the last two kinds; its own SHA-256 is the bundle's id
    contract.json       the contract, canonical JSON
    policy.onnx         the float32 graph
    policy.int8.onnx    the same quantised; also policy.fp16.onnx, policy.fp8.onnx
    golden.npz          recorded states and what the trained policy answered
    safety.json         the contract's safety envelope, for whoever looks for limits only
    verdict.dsse        what a validator signed: the verdict on one of the policies
    signatures/         publisher-KEYID.json: what publishers signed

A bundle is packed first and judged and signed later, so the id covers neither verdict nor signatures; these name it
instead. Equal members and facts give equal bytes. Nothing in a bundle is ever unpickled or executed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from physai.sdk.base.canonical import canonical_json, sha256_hex
from physai.sdk.base.documents import DocumentKind
from physai.sdk.base.errors import ContractError
from physai.sdk.bundle.archive import (
    LATER_MEMBERS,
    MANIFEST_FILE,
    MAX_BUNDLE_BYTES,
    MAX_MANIFEST_BYTES,
    POLICY_FILES,
    SAFETY_FILE,
    BundleError,
    Members,
    is_later,
    read_archive,
    read_file,
    write_archive,
)
from physai.sdk.contract.io import CONTRACT_FILE, parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import Frozen, Name
from physai.sdk.evidence.verdict import Sha256, Text, Utc, VerdictLine, utc_text
from physai.sdk.onnx.graph import check_policy
from physai.sdk.policy.golden import read_golden
from physai.sdk.policy.header import GOLDEN_FILE, MAX_PROVENANCE, POLICY_FILE, PolicyError, PolicyHeader

FORMAT_VERSION = 1
"""Changes when an older reader could misunderstand a newer bundle."""

MAX_VERSION = 2**53 - 1
"""Greatest version of a bundle: whole numbers in JSON are exact up to here."""

REQUIRED_FILES = (CONTRACT_FILE, POLICY_FILE, GOLDEN_FILE, SAFETY_FILE)
_DERIVED_FILES = (MANIFEST_FILE, CONTRACT_FILE, SAFETY_FILE)

_DISTRIBUTION = "physai-sdk"

ProvenanceKey = Annotated[str, Field(pattern=r"^[ -~]{1,128}$")]
MemberName = Annotated[str, Field(pattern=r"^[a-z0-9.]{1,64}$")]


class MemberFacts(Frozen):
    """Size and hash of one member."""

    sha256: Sha256
    size: Annotated[int, Field(ge=0, le=MAX_BUNDLE_BYTES)]
    """In bytes."""


class Manifest(Frozen):
    """What a bundle holds and where it comes from."""

    format_version: Literal[1] = FORMAT_VERSION
    task: Name
    """Task of the contract."""
    robot: Name
    """Robot model of the contract: `ur10e`."""
    version: Annotated[int, Field(ge=0, le=MAX_VERSION)]
    """Only grows from one release to the next: a robot accepts no bundle below the one it committed to."""
    created: Utc
    contract_fingerprint: Sha256
    members: Annotated[dict[MemberName, MemberFacts], Field(max_length=16)]
    """Every member that the manifest covers, by name."""
    provenance: Annotated[dict[ProvenanceKey, Text], Field(max_length=MAX_PROVENANCE)]
    """Where the policy comes from: commit, seeds, versions of the packages, training run."""
    physai_version: VerdictLine
    """Version that packed it."""


@dataclass(frozen=True)
class Bundle:
    """A bundle whose members are those its manifest names, and agree; `physai.sdk.signing.verify` says who vouches
    for it.
    """

    manifest: Manifest
    members: Members
    """`members[name]` is a copy of one member, `members.view(name)` is not."""
    contract: PolicyContract

    @property
    def id(self) -> str:
        """SHA-256 of the manifest: covers every member except verdict and signatures."""
        return self.members.sha256(MANIFEST_FILE)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the whole file."""
        return sha256(self.members.data).hexdigest()

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of every member, manifest, verdict and signatures included, in file order."""
        return {name: self.members.sha256(name) for name in self.members}

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the policies inside, the float32 one first."""
        return tuple(name for name in POLICY_FILES if name in self.members)


@dataclass(frozen=True, kw_only=True)
class ManifestFacts:
    """What a manifest says that the members do not."""

    version: int
    created: datetime
    """With a time zone; kept to the second."""
    provenance: Mapping[str, str] = field(default_factory=dict[str, str])
    """Beside what the policy's own file says; wins over it."""


def pack(members: Mapping[str, bytes], facts: ManifestFacts) -> bytes:
    """The unsigned bundle file of a policy.

    Args:
        members: `policy.onnx`, `golden.npz` and any of the other POLICY_FILES; the rest is derived from them.
        facts: version, time and further provenance.

    Raises:
        BundleError: a member is missing, unknown or too large, or they are not of one contract.
        PolicyError, ContractError: a policy or its golden file is malformed.
    """
    for name in (POLICY_FILE, GOLDEN_FILE):
        if name not in members:
            raise BundleError(f"a bundle needs {name}; `physai export RUN` writes it")
    derived = [name for name in members if name in _DERIVED_FILES or is_later(name)]
    if derived:
        raise BundleError(f"{', '.join(derived)} is derived from the policy, or made later; leave it out")
    header = _header(members[POLICY_FILE], POLICY_FILE)
    read_golden(members[GOLDEN_FILE], header)
    contract = header.contract
    content = {
        **members,
        CONTRACT_FILE: canonical_json(contract),
        SAFETY_FILE: canonical_json(contract.safety),
    }
    manifest = _manifest(contract, content, facts, {**header.provenance, **facts.provenance})
    data = write_archive({**content, MANIFEST_FILE: canonical_json(manifest)})
    read_bundle(data)
    return data


def _manifest(
    contract: PolicyContract, content: Mapping[str, bytes], facts: ManifestFacts, provenance: Mapping[str, str]
) -> Manifest:
    if facts.created.tzinfo is None:
        raise BundleError(f"the time of a bundle needs a time zone, got {facts.created}")
    try:
        return Manifest(
            task=contract.task,
            robot=contract.robot.name,
            version=facts.version,
            created=utc_text(facts.created),
            contract_fingerprint=contract.fingerprint,
            members={name: MemberFacts(sha256=sha256_hex(data), size=len(data)) for name, data in content.items()},
            provenance={key: _clean(value) for key, value in provenance.items()},
            physai_version=installed_version(_DISTRIBUTION),
        )
    except ValidationError as error:
        raise _KIND.invalid(error, source="the manifest") from None


def _clean(text: str) -> str:
    return re.sub(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", " ", text)[:4096]


_KIND = DocumentKind(
    name="manifest", format_version=FORMAT_VERSION, max_bytes=MAX_MANIFEST_BYTES, max_depth=4, error=BundleError
)


def read_bundle(data: bytes | Path) -> Bundle:
    """The bundle in a file or in its bytes; checks its form and that its parts agree, but no signature.

    Raises:
        BundleError: it cannot be read, is not in the one form a bundle has, or its parts contradict each other.
    """
    return open_members(read_archive(read_file(data) if isinstance(data, Path) else data))


def open_members(members: Members) -> Bundle:
    """The bundle that an archive's members make, if they agree.

    Raises:
        BundleError: the manifest is malformed or not canonical, does not list exactly these members with their sizes
            and hashes, or contract, safety envelope and policies are not of one contract.
    """
    if MANIFEST_FILE not in members:
        raise BundleError(f"no bundle: it has no {MANIFEST_FILE}")
    raw = members[MANIFEST_FILE]
    manifest = _KIND.parse(Manifest, raw, source=MANIFEST_FILE)
    if canonical_json(manifest) != raw:
        raise BundleError(f"{MANIFEST_FILE} is not in canonical JSON")
    _check_members(manifest, members)
    try:
        return Bundle(manifest, members, _check_contents(manifest, members))
    except (ContractError, PolicyError) as error:
        raise BundleError(str(error)) from None


def _check_members(manifest: Manifest, members: Members) -> None:
    """Refuses a member the manifest does not list, a listed one that is not there, and one with another content."""
    missing = [name for name in (*manifest.members, *REQUIRED_FILES) if name not in members]
    if missing:
        raise BundleError(f"the bundle lacks {', '.join(dict.fromkeys(missing))}")
    for name in members:
        if name == MANIFEST_FILE or is_later(name):
            continue
        if name not in manifest.members:
            raise BundleError(f"member {name} is not in the manifest")
        stated = manifest.members[name]
        if stated.size != members.size(name):
            raise BundleError(f"member {name} has {members.size(name)} bytes, the manifest says {stated.size}")
        if stated.sha256 != members.sha256(name):
            raise BundleError(f"member {name} has SHA-256 {members.sha256(name)}, the manifest says {stated.sha256}")
    if any(name == MANIFEST_FILE or is_later(name) for name in manifest.members):
        raise BundleError(f"the manifest lists itself, or a signature, which cannot be: {', '.join(manifest.members)}")


def _check_contents(manifest: Manifest, members: Members) -> PolicyContract:
    """The contract, which manifest, safety envelope and every policy must share."""
    raw = members[CONTRACT_FILE]
    contract = parse_contract(raw, source=CONTRACT_FILE)
    if canonical_json(contract) != raw:
        raise BundleError(f"{CONTRACT_FILE} is not in canonical JSON")
    # The fingerprint is the hash of the canonical JSON, which these bytes are.
    found = (members.sha256(CONTRACT_FILE), contract.task, contract.robot.name)
    stated = (manifest.contract_fingerprint, manifest.task, manifest.robot)
    if stated != found:
        raise BundleError(f"the manifest is for {', '.join(stated)}; its contract is {', '.join(found)}")
    if members[SAFETY_FILE] != canonical_json(contract.safety):
        raise BundleError(f"{SAFETY_FILE} is not the safety envelope of the contract")
    headers = {name: _header(members.view(name), name) for name in POLICY_FILES if name in members}
    for name, header in headers.items():
        _check_policy(header, name, headers[POLICY_FILE], contract)
    return contract


def _check_policy(header: PolicyHeader, name: str, float_header: PolicyHeader, contract: PolicyContract) -> None:
    remedy = "export and quantise one and the same run, then pack again"
    if header.contract != contract:
        ours, theirs = contract.fingerprint[:12], header.contract.fingerprint[:12]
        raise BundleError(f"{name} keeps the contract {theirs}, the bundle {ours}; {remedy}")
    if header.state_sizes != float_header.state_sizes:
        raise BundleError(
            f"{name} has the memories {header.state_sizes}, {POLICY_FILE} {float_header.state_sizes}; {remedy}"
        )


def _header(policy: bytes | memoryview, name: str) -> PolicyHeader:
    return check_policy(policy, source=name)


def attach(bundle: Bundle, members: Mapping[str, bytes]) -> bytes:
    """The bundle's file with a verdict or signatures added or replaced; its id stays.

    Raises:
        BundleError: a member is one that the manifest covers, or its name, size or the whole is not allowed.
    """
    covered = [name for name in members if not is_later(name)]
    if covered:
        raise BundleError(f"{', '.join(covered)} cannot be attached, only {' and '.join(LATER_MEMBERS)}…: pack again")
    kept = {name: bundle.members.view(name) for name in bundle.members if name not in members}
    return write_archive({**kept, **members})
