"""`physai bundle`: pack, inspect, verify, sign, compare and publish bundles."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, styled
from physai.sdk.cli.command import CliCommand
from physai.sdk.cli.shared.key_files import KEYS_SHOWN as _KEYS
from physai.sdk.cli.shared.key_files import default_trust, key_folder, load_key, utc_option
from physai.sdk.cli.shared.passphrases import add_passphrase_argument
from physai.sdk.cli.shared.rederivation import add_record_arguments, rederived
from physai.sdk.cli.shared.verdict_options import add_requirement_arguments, requirements_from

if TYPE_CHECKING:
    from physai.sdk.bundle.manifest import Bundle
    from physai.sdk.signing.attestation import Role
    from physai.sdk.signing.ed25519 import SigningKey
    from physai.sdk.signing.verify import Verified

_TIME = "2026-11-21T12:00:00Z"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_pack(actions.add_parser("pack", help="pack an exported policy into a bundle"))
    inspect = actions.add_parser("inspect", help="show the contents of a bundle, without verification")
    inspect.add_argument("bundle", type=Path, metavar="BUNDLE")
    inspect.add_argument("--card", action="store_true", help="print the model card instead")
    inspect.add_argument("--bom", type=Path, metavar="FILE", help="write a CycloneDX ML-BOM, JSON")
    verify = actions.add_parser("verify", help="would a robot install it? Exit code 0: yes; 1: no")
    verify.add_argument("bundle", type=Path, metavar="BUNDLE")
    verify.add_argument(
        "--trust", type=Path, metavar="FILE", help=f"the robot's trust file (default: {_KEYS}/trust.json)"
    )
    verify.add_argument("--robot", metavar="NAME", help="the robot's name (default: the bundle's robot model)")
    verify.add_argument("--floor", type=int, default=0, metavar="N", help="lowest accepted version (default: 0)")
    verify.add_argument("--at", metavar="TIME", help=f"time on the robot, {_TIME} (default: now)")
    verify.add_argument("--machine", metavar="TEXT", help="the robot's computer, as `physai robot doctor` shows it")
    add_requirement_arguments(verify)
    verify.add_argument("--no-verdict", action="store_true", help="do not require a verdict")
    _add_sign(actions.add_parser("sign", help="sign a bundle as a publisher, or its verdict as a validator"))
    compare = actions.add_parser("diff", help="list the differences between two bundles. Exit code 0: none; 1: some")
    compare.add_argument("left", type=Path, metavar="LEFT")
    compare.add_argument("right", type=Path, metavar="RIGHT")
    push = actions.add_parser("push", help="publish a bundle in a service of `physai sim serve`")
    push.add_argument("bundle", type=Path, metavar="BUNDLE")
    push.add_argument("--server", required=True, metavar="URL", help="the service; token in PHYSAI_TOKEN")
    for action in actions.choices.values():
        action.add_argument("--json", action="store_true", help="print JSON")


def _add_pack(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("policy", type=Path, metavar="POLICY", help="run folder, export folder, or policy.onnx")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="output file (default: ./TASK.physai)")
    parser.add_argument(
        "--variants",
        metavar="LIST",
        help="quantised variants to pack: int8,fp16,fp8 or none (default: all in the policy's folder)",
    )
    parser.add_argument(
        "--version", type=int, metavar="N", help="must increase with every release (default: seconds since 1970)"
    )
    parser.add_argument("--created", metavar="TIME", help=f"{_TIME} (default: SOURCE_DATE_EPOCH, or now)")
    parser.add_argument("--note", metavar="TEXT", help="text for the provenance")
    parser.add_argument("--sign", action="store_true", help="also sign the bundle, with --key")
    parser.add_argument("--key", type=Path, metavar="FILE", help=f"publisher's key (default: {_KEYS}/publisher.key)")
    _add_verdict(parser)
    parser.add_argument(
        "--validator-key", type=Path, metavar="FILE", help=f"for --verdict (default: {_KEYS}/validator.key)"
    )
    add_passphrase_argument(parser)


def _add_sign(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument(
        "--role",
        choices=["publisher", "validator"],
        help="default: publisher; with --verdict validator",
    )
    parser.add_argument("--key", type=Path, metavar="FILE", help=f"private key (default: {_KEYS}/ROLE.key)")
    _add_verdict(parser)
    parser.add_argument("--replace", action="store_true", help="drop the signatures of other keys of the role")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="output file (default: sign in place)")
    add_passphrase_argument(parser)


def _add_verdict(parser: argparse.ArgumentParser) -> None:
    add_record_arguments(parser)
    parser.add_argument("--robot", metavar="NAME", help="robot the verdict applies to: ur10e, or one unit ur10e/cell-3")
    parser.add_argument("--days", type=int, default=90, metavar="N", help="validity of the verdict (default: 90)")
    add_requirement_arguments(parser)


def _run(arguments: argparse.Namespace) -> int:
    actions = {"pack": _pack, "inspect": _inspect, "verify": _verify, "sign": _sign, "diff": _diff, "push": _push}
    return actions[arguments.action](arguments)


def _pack(arguments: argparse.Namespace) -> int:
    from physai.sdk.bundle.manifest import ManifestFacts, pack, read_bundle
    from physai.sdk.bundle.source import find_export, read_members
    from physai.sdk.evidence.verdict import load_verdict
    from physai.sdk.signing.sign import sign_bundle

    created = _created(arguments.created)
    facts = ManifestFacts(
        version=int(created.timestamp()) if arguments.version is None else arguments.version,
        created=created,
        provenance={} if arguments.note is None else {"note": arguments.note},
    )
    members = read_members(find_export(arguments.policy), _variants(arguments.variants))
    verdict = validator = None
    if arguments.verdict is not None:
        validator = _load_key(arguments, "validator", arguments.validator_key)
        verdict = load_verdict(arguments.verdict)
    data = pack(members, facts, verdict=verdict)
    if arguments.sign or arguments.key is not None:
        data = sign_bundle(read_bundle(data), _load_key(arguments, "publisher", arguments.key))
    if validator is not None:
        data = _with_verdict(read_bundle(data), arguments, validator)
    bundle = read_bundle(data)
    return _write(bundle, data, arguments.out or Path(f"{bundle.manifest.task.replace('/', '-')}.physai"), arguments)


def _write_file(path: Path, data: bytes) -> None:
    """Writes a file atomically, world-readable; raises PhysaiError if that fails."""
    from physai.sdk.base.files import write_atomic

    try:
        write_atomic(path, data)
        path.chmod(0o644)
    except OSError as error:
        raise PhysaiError(f"{path}: cannot be written: {error.strerror}") from None


def _created(text: str | None) -> datetime:
    """Creation time of a bundle: `--created`, else SOURCE_DATE_EPOCH, else now."""
    # https://reproducible-builds.org/specs/source-date-epoch/
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if text is not None:
        return utc_option("--created", text)
    if epoch is None:
        return datetime.now(UTC).replace(microsecond=0)
    try:
        return datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError):
        raise PhysaiError(f"SOURCE_DATE_EPOCH is {epoch!r}, expected seconds since 1970") from None


def _variants(text: str | None) -> list[str] | None:
    from physai.sdk.base.errors import unknown_name
    from physai.sdk.bundle.source import VARIANTS

    if text is None:
        return None
    names = [] if text == "none" else text.split(",")
    for name in names:
        if name not in VARIANTS:
            raise unknown_name("variant", name, [*VARIANTS, "none"])
    return names


def _load_key(arguments: argparse.Namespace, role: Role, path: Path | None) -> SigningKey:
    from physai.sdk.signing.ed25519 import PRIVATE_SUFFIX, KeyFileError

    path = path or key_folder() / f"{role}{PRIVATE_SUFFIX}"
    if not path.exists():
        raise KeyFileError(f"{path}: no such key; make keys with: physai keys init")
    return load_key(path, role, arguments)


def _with_verdict(bundle: Bundle, arguments: argparse.Namespace, key: SigningKey) -> bytes:
    from physai.sdk.signing.sign import sign_verdict

    verdict = rederived(bundle, arguments, key)
    return sign_verdict(
        bundle,
        key,
        verdict,
        robot=arguments.robot,
        now=datetime.now(UTC),
        # Clamped to what timedelta can hold; sign_verdict checks the range.
        lifetime=timedelta(days=min(max(arguments.days, 0), 10**6)),
        requirements=requirements_from(arguments),
        replace=getattr(arguments, "replace", False),
    )


def _sign(arguments: argparse.Namespace) -> int:
    from physai.sdk.bundle.manifest import read_bundle
    from physai.sdk.signing.sign import sign_bundle

    role: Role = arguments.role or ("publisher" if arguments.verdict is None else "validator")
    if role == "publisher" and arguments.verdict is not None:
        raise PhysaiError("only a validator can sign a verdict: remove --role publisher")
    bundle = read_bundle(arguments.bundle)
    key = _load_key(arguments, role, arguments.key)
    if role == "publisher":
        data = sign_bundle(bundle, key, replace=arguments.replace)
    else:
        data = _with_verdict(bundle, arguments, key)
    return _write(read_bundle(data), data, arguments.out or arguments.bundle, arguments)


def _write(bundle: Bundle, data: bytes, path: Path, arguments: argparse.Namespace) -> int:
    from physai.sdk.cli.bundle_text import record, summary

    _write_file(path, data)
    print(json.dumps(record(bundle, path), indent=2) if arguments.json else printable(summary(bundle, path)))
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    from physai.sdk.bundle.manifest import read_bundle
    from physai.sdk.cli.bundle_text import card_text, record, sections
    from physai.sdk.signing.bom import bom_text

    bundle = read_bundle(arguments.bundle)
    if arguments.bom is not None:
        _write_file(arguments.bom, bom_text(bundle).encode())
    if arguments.card:
        print(printable(card_text(bundle)), end="")
    elif arguments.json:
        print(json.dumps(record(bundle, arguments.bundle), indent=2))
    else:
        print(printable(sections(bundle, arguments.bundle)))
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    from physai.sdk.bundle.archive import read_file
    from physai.sdk.signing.trust_file import SignedTrust
    from physai.sdk.signing.verify import VerificationError, verify

    trust = SignedTrust.load(arguments.trust or default_trust()).check()
    now = datetime.now(UTC) if arguments.at is None else utc_option("--at", arguments.at)
    data = read_file(arguments.bundle)
    robot = arguments.robot or _model(data)
    try:
        verified = verify(
            data,
            trust,
            robot=robot,
            now=now,
            floor=arguments.floor,
            requirements=requirements_from(arguments),
            machine=arguments.machine,
            require_verdict=not arguments.no_verdict,
        )
    except VerificationError as error:
        if arguments.json:
            print(json.dumps({"accepted": False, "rule": error.rule.value, "reason": error.reason, "robot": robot}))
        else:
            print(f"{styled('REFUSED', 'red', sys.stdout)} by {printable(robot)}: {printable(str(error))}")
        return 1
    _print_accepted(verified, robot, as_json=arguments.json)
    return 0


def _model(data: bytes) -> str:
    """Robot model of a bundle; "any robot" for a damaged bundle, which no robot accepts."""
    from physai.sdk.bundle.archive import BundleError
    from physai.sdk.bundle.manifest import read_bundle

    try:
        return read_bundle(data).manifest.robot
    except BundleError:
        return "any robot"


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


def _diff(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from physai.sdk.bundle.manifest import read_bundle
    from physai.sdk.cli.bundle_text import differences_text
    from physai.sdk.signing.bundle_diff import diff_bundles

    left, right = read_bundle(arguments.left), read_bundle(arguments.right)
    differences = diff_bundles(left, right)
    if arguments.json:
        shown = {"same": not differences, "left": left.id, "right": right.id}
        print(json.dumps({**shown, "differences": [asdict(one) for one in differences]}, indent=2))
    elif differences:
        print(printable(differences_text(differences, str(arguments.left), str(arguments.right))))
    else:
        print(f"same bundle, id {left.id}")
    return 1 if differences else 0


def _push(arguments: argparse.Namespace) -> int:
    from physai.sdk.base.service import Service
    from physai.sdk.bundle.archive import read_file
    from physai.sdk.bundle.registered import push_bundle

    service = Service.parse(arguments.server)
    digest = push_bundle(service, read_file(arguments.bundle))
    if arguments.json:
        print(json.dumps({"sha256": digest, "server": service.url}, indent=2))
    else:
        print(f"published    {digest}\nflash it     physai flash HOST {digest[:12]} --server {service.url}")
    return 0


command = CliCommand(
    summary="pack, inspect, verify, sign, compare and publish bundles",
    add_arguments=_add_arguments,
    run=_run,
)
