"""Bundles: a single file with everything a robot needs to run one policy.

    manifest.json       size and SHA-256 of every member except verdict and signatures; its SHA-256 is the bundle's id
    contract.json       the contract, canonical JSON
    policy.onnx         the float32 graph
    policy.int8.onnx    quantised graph; also policy.fp16.onnx, policy.fp8.onnx
    golden.npz          recorded inputs and the trained policy's outputs
    safety.json         the contract's safety envelope on its own
    MODEL_CARD.md       what a person wants to know; no robot reads it
    verdict.dsse        verdict on one of the policies, signed by validators
    signatures/         publisher-KEYID.json: signatures of the publishers

A bundle is packed before it is validated and signed, so the id does not cover verdict and signatures; they refer to
the id instead. Equal members and facts give equal bytes. Nothing in a bundle is ever unpickled or executed.
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

from physai.sdk.base.errors import ContractError
from physai.sdk.base.formats.canonical import canonical_json, sha256_hex
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.bundle.archive import (
    LATER_MEMBERS,
    MANIFEST_FILE,
    MAX_BUNDLE_BYTES,
    MAX_MANIFEST_BYTES,
    MODEL_CARD_FILE,
    POLICY_FILES,
    SAFETY_FILE,
    BundleError,
    Members,
    is_later,
    read_archive,
    read_file,
    write_archive,
)
from physai.sdk.bundle.model_card import model_card
from physai.sdk.contract.io import CONTRACT_FILE, parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import Frozen, Name
from physai.sdk.evidence.preferences import Preferences, StatedPreferencesError, preference_entries
from physai.sdk.evidence.verdict import Sha256, Text, Utc, Verdict, VerdictLine, utc_text
from physai.sdk.onnx.graph import check_policy
from physai.sdk.policy.golden import read_golden
from physai.sdk.policy.header import GOLDEN_FILE, MAX_PROVENANCE, POLICY_FILE, PolicyError, PolicyHeader
from physai.sdk.policy.run_identity import FACTS_KEY, ID_KEY, SIGNATURE_KEY, named_run

FORMAT_VERSION = 1
"""Incremented when an older reader could misinterpret a newer bundle."""

MAX_VERSION = 2**53 - 1
"""Maximum version of a bundle: the largest integer that is exact in every JSON reader."""

REQUIRED_FILES = (CONTRACT_FILE, POLICY_FILE, GOLDEN_FILE, SAFETY_FILE)
_DERIVED_FILES = (MANIFEST_FILE, CONTRACT_FILE, SAFETY_FILE, MODEL_CARD_FILE)

_DISTRIBUTION = "physai-sdk"

ProvenanceKey = Annotated[str, Field(pattern=r"^[ -~]{1,128}$")]
MemberName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._]{1,64}$")]


class MemberFacts(Frozen):
    """Size and hash of one member."""

    sha256: Sha256
    size: Annotated[int, Field(ge=0, le=MAX_BUNDLE_BYTES)]
    """In bytes."""


class Manifest(Frozen):
    """Contents and provenance of a bundle."""

    format_version: Literal[1] = FORMAT_VERSION
    task: Name
    robot: Name
    """Robot model of the contract: `ur10e`."""
    version: Annotated[int, Field(ge=0, le=MAX_VERSION)]
    """Increases with every release: a robot rejects bundles below the version it committed to."""
    created: Utc
    contract_fingerprint: Sha256
    members: Annotated[dict[MemberName, MemberFacts], Field(max_length=16)]
    """Members covered by the manifest, by name."""
    provenance: Annotated[dict[ProvenanceKey, Text], Field(max_length=MAX_PROVENANCE)]
    """Origin of the policy: commit, seeds, package versions, training run."""
    physai_version: VerdictLine
    """Version of physai that packed the bundle."""


@dataclass(frozen=True)
class Bundle:
    """A bundle whose members match its manifest; `physai.sdk.signing.verify` checks the signatures."""

    manifest: Manifest
    members: Members
    """`members[name]` copies a member, `members.view(name)` does not."""
    contract: PolicyContract

    @property
    def id(self) -> str:
        """SHA-256 of the manifest; covers every member except verdict and signatures."""
        return self.members.sha256(MANIFEST_FILE)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the whole file."""
        return sha256(self.members.data).hexdigest()

    @property
    def run(self) -> str | None:
        """Id of the run that made the policy, see `physai.sdk.policy.run_identity`; None if it names none."""
        return self.manifest.provenance.get(ID_KEY)

    @property
    def preferences(self) -> Preferences | None:
        """Preferences that the policy states it learned from; None if it states none."""
        return Preferences.stated(self.manifest.provenance, source=POLICY_FILE)

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of every member, including manifest, verdict and signatures, in file order."""
        return {name: self.members.sha256(name) for name in self.members}

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the policies in the bundle, float32 first."""
        return tuple(name for name in POLICY_FILES if name in self.members)


@dataclass(frozen=True, kw_only=True)
class ManifestFacts:
    """Manifest fields that cannot be derived from the members."""

    version: int
    created: datetime
    """Timezone-aware; stored to the second."""
    provenance: Mapping[str, str] = field(default_factory=dict[str, str])
    """Added to the provenance in the policy file, and overrides it."""


def pack(members: Mapping[str, bytes], facts: ManifestFacts, *, verdict: Verdict | None = None) -> bytes:
    """Packs a policy into an unsigned bundle.

    Args:
        members: `policy.onnx`, `golden.npz` and any of the other POLICY_FILES; the rest is derived from them.
        facts: version, time and additional provenance.
        verdict: what the model card shows of a validation; the signed verdict is attached later.

    Raises:
        BundleError: a member is missing, unknown or too large, or the members have different contracts.
        PolicyError, ContractError: a policy or its golden file is malformed.
    """
    for name in (POLICY_FILE, GOLDEN_FILE):
        if name not in members:
            raise BundleError(f"a bundle needs {name}; `physai export RUN` writes it")
    derived = [name for name in members if name in _DERIVED_FILES or is_later(name)]
    if derived:
        raise BundleError(f"{', '.join(derived)} is derived from the policy, or added later; leave it out")
    header = check_policy(members[POLICY_FILE], source=POLICY_FILE)
    read_golden(members[GOLDEN_FILE], header)
    contract = header.contract
    content = {
        **members,
        CONTRACT_FILE: canonical_json(contract),
        SAFETY_FILE: canonical_json(contract.safety),
        MODEL_CARD_FILE: _card(header, members, verdict),
    }
    manifest = _manifest(contract, content, facts, {**header.provenance, **facts.provenance})
    data = write_archive({**content, MANIFEST_FILE: canonical_json(manifest)})
    # Never hand out a bundle that a robot would refuse.
    read_bundle(data)
    return data


def _card(header: PolicyHeader, members: Mapping[str, bytes], verdict: Verdict | None) -> bytes:
    policies = {name: sha256_hex(members[name]) for name in POLICY_FILES if name in members}
    if verdict is not None and verdict.policy_sha256 not in policies.values():
        packed = ", ".join(f"{name} {digest[:12]}" for name, digest in policies.items())
        raise BundleError(
            f"the verdict is on a policy of SHA-256 {verdict.policy_sha256[:12]}, the bundle would hold {packed}; "
            "validate one of these"
        )
    try:
        return model_card(header, policies, verdict).encode()
    except StatedPreferencesError as error:
        raise BundleError(str(error)) from None


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


def read_bundle(data: bytes | Path | str) -> Bundle:
    """Reads a bundle from a file or from bytes; checks form and consistency, but no signature.

    Raises:
        BundleError: the bundle cannot be read, is not in canonical form, or is inconsistent.
    """
    return open_members(read_archive(data if isinstance(data, bytes) else read_file(Path(data))))


def open_members(members: Members) -> Bundle:
    """The bundle made up of an archive's members.

    Raises:
        BundleError: the manifest is malformed or not canonical, does not list exactly these members with their sizes
            and hashes, or contract, safety envelope and policies do not match.
    """
    if MANIFEST_FILE not in members:
        raise BundleError(f"not a bundle: it has no {MANIFEST_FILE}")
    raw = members[MANIFEST_FILE]
    manifest = _KIND.parse(Manifest, raw, source=MANIFEST_FILE)
    if canonical_json(manifest) != raw:
        raise BundleError(f"{MANIFEST_FILE} is not in canonical JSON")
    _check_members(manifest, members)
    try:
        return Bundle(manifest, members, _check_contents(manifest, members))
    except (ContractError, PolicyError, StatedPreferencesError) as error:
        raise BundleError(str(error)) from None


def _check_members(manifest: Manifest, members: Members) -> None:
    """Refuses members that are unlisted, missing, or differ from the manifest in size or hash."""
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
        raise BundleError(f"the manifest must list neither itself nor a signature: {', '.join(manifest.members)}")


def _check_contents(manifest: Manifest, members: Members) -> PolicyContract:
    """Returns the contract after checking that manifest, safety envelope and every policy match it."""
    raw = members[CONTRACT_FILE]
    contract = parse_contract(raw, source=CONTRACT_FILE)
    if canonical_json(contract) != raw:
        raise BundleError(f"{CONTRACT_FILE} is not in canonical JSON")
    # The bytes are canonical JSON, so their hash is the contract's fingerprint.
    actual = (members.sha256(CONTRACT_FILE), contract.task, contract.robot.name)
    stated = (manifest.contract_fingerprint, manifest.task, manifest.robot)
    if stated != actual:
        raise BundleError(f"the manifest is for {', '.join(stated)}; its contract is {', '.join(actual)}")
    if members[SAFETY_FILE] != canonical_json(contract.safety):
        raise BundleError(f"{SAFETY_FILE} is not the safety envelope of the contract")
    headers = {name: check_policy(members.view(name), source=name) for name in POLICY_FILES if name in members}
    for name, header in headers.items():
        _check_policy(header, name, headers[POLICY_FILE], contract)
        named_run(header, source=name, original=(headers[POLICY_FILE], members.sha256(POLICY_FILE)))
    _check_provenance(manifest, headers[POLICY_FILE])
    Preferences.stated(headers[POLICY_FILE].provenance, source=POLICY_FILE)
    return contract


def _check_policy(header: PolicyHeader, name: str, float_header: PolicyHeader, contract: PolicyContract) -> None:
    remedy = "export and quantise the same run, then pack again"
    if header.contract != contract:
        ours, theirs = contract.fingerprint[:12], header.contract.fingerprint[:12]
        raise BundleError(f"{name} has the contract {theirs}, the bundle {ours}; {remedy}")
    if header.state_sizes != float_header.state_sizes:
        raise BundleError(
            f"{name} has the state sizes {header.state_sizes}, {POLICY_FILE} {float_header.state_sizes}; {remedy}"
        )
    stated, original = (preference_entries(one.provenance) for one in (header, float_header))
    if stated != original:
        raise BundleError(f"{name} states {stated!s:.200} of preferences, {POLICY_FILE} {original!s:.200}; {remedy}")


def _check_provenance(manifest: Manifest, header: PolicyHeader) -> None:
    """Raises BundleError if the manifest names another run or other preferences than the policy."""
    about_preferences = sorted({*preference_entries(manifest.provenance), *preference_entries(header.provenance)})
    for key in (ID_KEY, FACTS_KEY, SIGNATURE_KEY, *about_preferences):
        stated, actual = manifest.provenance.get(key), header.provenance.get(key)
        if stated != actual:
            raise BundleError(
                f"the manifest states {key} {stated!s:.80}, {POLICY_FILE} {actual!s:.80}; pack the policy again"
            )


def attach(bundle: Bundle, members: Mapping[str, bytes]) -> bytes:
    """The bundle with a verdict or signatures added or replaced; its id does not change.

    Raises:
        BundleError: the manifest covers a member, a name is not allowed, or the result is too large.
    """
    covered = [name for name in members if not is_later(name)]
    if covered:
        raise BundleError(f"{', '.join(covered)} cannot be attached, only {' and '.join(LATER_MEMBERS)}…: pack again")
    kept = {name: bundle.members.view(name) for name in bundle.members if name not in members}
    return write_archive({**kept, **members})
