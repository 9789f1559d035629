"""`physai bundle`: pack, inspect, verify, sign, compare, publish and revoke bundles."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace as with_fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, styled
from physai.sdk.cli.shared.key_files import key_of_role
from physai.sdk.cli.shared.options import RequirementOptions
from physai.sdk.cli.verb import AsJson, Option, noun, verb
from physai.sdk.signing.files.bundles import pack_bundle, sign_as_publisher, sign_as_validator, verify_bundle
from physai.sdk.signing.files.rederivation import VerdictTerms
from physai.sdk.signing.files.status_files import SignedWord, read_word, revoke_verdict

if TYPE_CHECKING:
    from physai.sdk.signing.files.bundles import BundleFile
    from physai.sdk.signing.verify import Verified

_BundleFile = Annotated[Path, Option(metavar="BUNDLE")]
_Required = Annotated[RequirementOptions, Option(flatten=True)]


@verb(pack_bundle, summary="pack an exported policy into a bundle")
def _pack(
    call: Callable[..., BundleFile],
    *,
    report: Path | None,
    sign: bool = False,
    key: Path | None = None,
    validator_key: Path | None = None,
    terms: Annotated[VerdictTerms | None, Option(flatten=True)],
    required: _Required,
    passphrase_file: Path | None = None,
    as_json: AsJson = False,
) -> int:
    """Pack a bundle.

    Args:
        sign: also sign the bundle, with `key`.
        key: publisher's key. None for ~/.config/physai/keys/publisher.key.
        validator_key: key for --verdict. None for ~/.config/physai/keys/validator.key.
        passphrase_file: file whose first line is the passphrase of the key. None for a prompt.
    """
    publisher = key_of_role("publisher", key, passphrase_file) if sign or key is not None else None
    validator = None if report is None else key_of_role("validator", validator_key, passphrase_file)
    return _written(call(publisher=publisher, validator=validator, terms=_told(terms, required)), as_json=as_json)


@verb(summary="sign a bundle as a publisher, or its verdict as a validator")
def _sign(
    bundle: _BundleFile,
    *,
    role: Literal["publisher", "validator"] | None = None,
    key: Path | None = None,
    report: Annotated[Path | None, Option(flags=("--verdict",), metavar="DIR")] = None,
    terms: Annotated[VerdictTerms, Option(flatten=True)],
    required: _Required,
    replace: bool = False,
    out: Annotated[Path | None, Option(flags=("-o",))] = None,
    passphrase_file: Path | None = None,
    as_json: AsJson = False,
) -> int:
    """Sign a bundle.

    Args:
        bundle: bundle file.
        role: role of the key. None for publisher; with `report` validator.
        key: private key. None for ~/.config/physai/keys/ROLE.key.
        report: report folder of `physai sim validate`; the verdict is recomputed from its record before it is signed.
        replace: drop the signatures of other keys of the role.
        out: output file. None for signing in place.
        passphrase_file: file whose first line is the passphrase of the key. None for a prompt.
    """
    from physai.sdk.bundle.manifest import read_bundle

    # A file that is no bundle is told before a passphrase is asked for.
    read_bundle(bundle)
    role = role or ("publisher" if report is None else "validator")
    if role == "publisher":
        if report is not None:
            raise PhysaiError("only a validator can sign a verdict: remove --role publisher")
        publisher = key_of_role(role, key, passphrase_file)
        return _written(sign_as_publisher(bundle, publisher, out=out, replace=replace), as_json=as_json)
    if report is None:
        raise PhysaiError("a validator signs a verdict: give --verdict DIR, a report folder of `physai sim validate`")
    validator, told = key_of_role(role, key, passphrase_file), _told(terms, required)
    return _written(sign_as_validator(bundle, validator, report, terms=told, out=out, replace=replace), as_json=as_json)


def _told(terms: VerdictTerms | None, required: RequirementOptions) -> VerdictTerms:
    def say(text: str) -> None:
        if sys.stderr.isatty():
            print(text, file=sys.stderr)

    return with_fields(terms or VerdictTerms(), requirements=required.requirements(), say=say)


def _written(file: BundleFile, *, as_json: bool) -> int:
    from physai.sdk.cli.shared.bundle_text import record, summary

    bundle, path = file.bundle, file.path
    print(json.dumps(record(bundle, path), indent=2) if as_json else printable(summary(bundle, path)))
    return 0


@verb(summary="show the contents of a bundle, without verification")
def _inspect(bundle: _BundleFile, *, card: bool = False, bom: Path | None = None, as_json: AsJson = False) -> int:
    """Show a bundle.

    Args:
        bundle: bundle file.
        card: print the model card instead.
        bom: write a CycloneDX ML-BOM, JSON.
    """
    from physai.sdk.bundle.manifest import read_bundle
    from physai.sdk.cli.shared.bundle_text import card_text, record, sections
    from physai.sdk.signing.files.bom import bom_text
    from physai.sdk.signing.files.bundles import write_file

    read = read_bundle(bundle)
    if bom is not None:
        write_file(bom, bom_text(read).encode())
    if card:
        print(printable(card_text(read)), end="")
    elif as_json:
        print(json.dumps(record(read, bundle), indent=2))
    else:
        print(printable(sections(read, bundle)))
    return 0


@verb(verify_bundle, summary="would a robot install it? Exit code 0: yes; 1: no")
def _verify(
    call: Callable[..., Verified], *, bundle: Path, robot: str | None, required: _Required, as_json: AsJson = False
) -> int:
    """Verify a bundle."""
    from physai.sdk.bundle.archive import read_file
    from physai.sdk.signing.files.bundles import robot_model
    from physai.sdk.signing.verify import VerificationError

    robot = robot or robot_model(read_file(bundle))
    try:
        verified = call(robot=robot, requirements=required.requirements())
    except VerificationError as error:
        if as_json:
            print(json.dumps({"accepted": False, "rule": error.rule.value, "reason": error.reason, "robot": robot}))
        else:
            print(f"{styled('REFUSED', 'red', sys.stdout)} by {printable(robot)}: {printable(str(error))}")
        return 1
    _print_accepted(verified, robot, as_json=as_json)
    return 0


def _print_accepted(verified: Verified, robot: str, *, as_json: bool) -> None:
    from physai.sdk.evidence.verdict import utc_text

    bundle, verdict = verified.bundle, verified.verdict
    expires = None if verdict is None else utc_text(verdict.expires)
    if as_json:
        record = {
            "accepted": True,
            "robot": robot,
            "id": bundle.id,
            "version": bundle.manifest.version,
            "policy": verified.policy,
            "preferences": None if bundle.preferences is None else bundle.preferences.model_dump(mode="json"),
            "expires": expires,
            "verdict_problem": verified.verdict_problem,
            "signers": {role: list(keys) for role, keys in verified.signers.items()},
        }
        print(json.dumps(record, indent=2))
        return
    signers = ", ".join(f"{role} {key[:16]}" for role, keys in verified.signers.items() for key in keys)
    print(printable(f"bundle     {bundle.id}, version {bundle.manifest.version}"))
    print(printable(f"signed by  {signers}"))
    if bundle.preferences is not None:
        origin = bundle.preferences.reference or "nothing"
        print(f"learned    from the preferences {bundle.preferences.database[:16]}, fine-tuned from {origin[:16]}")
    print(f"runs       {verified.policy}" + ("" if expires is None else f", until {expires}"))
    if verdict is None:
        label = styled("ACCEPTED WITHOUT A VERDICT", "red", sys.stdout)
        print(f"{label} by {printable(robot)}: {verified.verdict_problem}")
    else:
        print(f"{styled('ACCEPTED', 'green', sys.stdout)} by {printable(robot)}")


@verb(summary="list the differences between two bundles. Exit code 0: none; 1: some")
def _diff(left: Path, right: Path, *, as_json: AsJson = False) -> int:
    """Compare two bundles.

    Args:
        left: bundle file.
        right: another.
    """
    from dataclasses import asdict

    from physai.sdk.bundle.manifest import read_bundle
    from physai.sdk.cli.shared.bundle_text import differences_text
    from physai.sdk.signing.files.bundle_diff import diff_bundles

    first, second = read_bundle(left), read_bundle(right)
    differences = diff_bundles(first, second)
    if as_json:
        shown = {"same": not differences, "left": first.id, "right": second.id}
        print(json.dumps({**shown, "differences": [asdict(one) for one in differences]}, indent=2))
    elif differences:
        print(printable(differences_text(differences, str(left), str(right))))
    else:
        print(f"same bundle, id {first.id}")
    return 1 if differences else 0


@verb(summary="publish a bundle in a service of `physai sim serve`")
def _push(bundle: _BundleFile, *, server: Annotated[str, Option(metavar="URL")], as_json: AsJson = False) -> int:
    """Publish a bundle.

    Args:
        bundle: bundle file.
        server: the service; token in PHYSAI_TOKEN.
    """
    from physai.sdk.base.service import Service
    from physai.sdk.bundle.registered import push_bundle

    service = Service.parse(server)
    digest, url = push_bundle(bundle, server=service), service.url
    if as_json:
        print(json.dumps({"sha256": digest, "server": url}, indent=2))
    else:
        print(f"published    {digest}\nflash it     physai flash HOST {digest[:12]} --server {url}")
    return 0


@verb(revoke_verdict, summary="revoke or narrow a verdict, or say that all is well, in a status document for robots")
def _revoke(
    call: Callable[..., SignedWord],
    *,
    key: Annotated[Sequence[Path], Option(repeat=True)] = (),
    passphrase_file: Path | None = None,
    as_json: AsJson = False,
) -> int:
    """Sign a status document.

    Args:
        key: a validator's key; repeatable. None for validator.key of ~/.config/physai/keys.
        passphrase_file: file whose first line is the passphrase of the key. None for a prompt.
    """
    return _told_word(call([key_of_role("validator", one, passphrase_file) for one in key or (None,)]), as_json=as_json)


@verb(read_word, summary="show a status document, or a monitor's report, and who signed it")
def _status(call: Callable[..., SignedWord], *, as_json: AsJson = False) -> int:
    """Show a status document or a report."""
    return _told_word(call(), as_json=as_json)


def _told_word(word: SignedWord, *, as_json: bool) -> int:
    from physai.sdk.cli.shared.bundle_text import word_text

    record = {"file": str(word.path), "signers": list(word.signers), **word.word.model_dump(mode="json")}
    print(json.dumps(record, indent=2) if as_json else printable(word_text(word)))
    return 0


command = noun(
    "pack, inspect, verify, sign, compare, publish and revoke bundles",
    {
        "pack": _pack,
        "inspect": _inspect,
        "verify": _verify,
        "sign": _sign,
        "diff": _diff,
        "push": _push,
        "revoke": _revoke,
        "status": _status,
    },
)
