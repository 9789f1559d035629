"""`physai bundle`: pack a policy, look into a bundle, verify, sign and compare."""

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
from physai.sdk.cli.keys import default_trust, key_folder
from physai.sdk.cli.passphrases import add_passphrase_argument, passphrase_from
from physai.sdk.cli.requirements import add_requirement_arguments, requirements_from
from physai.sdk.cli.verdicts import add_record_arguments, rederived

if TYPE_CHECKING:
    from physai.sdk.bundle.manifest import Bundle
    from physai.sdk.signing.attestation import Role
    from physai.sdk.signing.keys import SigningKey
    from physai.sdk.signing.verify import Verified

_KEYS = "~/.config/physai/keys"
_TIME = "2026-11-21T12:00:00Z"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_pack(actions.add_parser("pack", help="make a bundle of an exported policy"))
    inspect = actions.add_parser("inspect", help="show what a bundle holds and says of itself; believes everything")
    inspect.add_argument("bundle", type=Path, metavar="BUNDLE")
    inspect.add_argument("--bom", type=Path, metavar="FILE", help="write a CycloneDX ML-BOM, JSON")
    verify = actions.add_parser("verify", help="would a robot install it? Exit code 0: yes; 1: no")
    verify.add_argument("bundle", type=Path, metavar="BUNDLE")
    verify.add_argument(
        "--trust", type=Path, metavar="FILE", help=f"the robot's trust file (default: {_KEYS}/trust.json)"
    )
    verify.add_argument("--robot", metavar="NAME", help="the robot's name (default: the model the bundle is for)")
    verify.add_argument("--floor", type=int, default=0, metavar="N", help="lowest version it accepts (default: 0)")
    verify.add_argument("--at", metavar="TIME", help=f"its clock, {_TIME} (default: now)")
    verify.add_argument("--machine", metavar="TEXT", help="its computer, as `physai robot doctor` names it")
    add_requirement_arguments(verify)
    verify.add_argument("--no-verdict", action="store_true", help="as a robot told to do without a verdict")
    _add_sign(actions.add_parser("sign", help="sign a bundle as its publisher, or a verdict on it as a validator"))
    compare = actions.add_parser(
        "diff", help="name everything in which two bundles differ. Exit code 0: nothing; 1: some"
    )
    compare.add_argument("left", type=Path, metavar="LEFT")
    compare.add_argument("right", type=Path, metavar="RIGHT")
    for action in actions.choices.values():
        action.add_argument("--json", action="store_true", help="print JSON")


def _add_pack(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("policy", type=Path, metavar="POLICY", help="run folder, export folder, or policy.onnx")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="the bundle (default: TASK.physai, here)")
    parser.add_argument(
        "--variants",
        metavar="LIST",
        help="quantised siblings to pack: int8,fp16,fp8 or none (default: those beside the policy)",
    )
    parser.add_argument("--version", type=int, metavar="N", help="only grows (default: the time, seconds since 1970)")
    parser.add_argument("--created", metavar="TIME", help=f"{_TIME} (default: SOURCE_DATE_EPOCH, or now)")
    parser.add_argument("--note", metavar="TEXT", help="kept in the provenance")
    parser.add_argument("--sign", action="store_true", help="sign it at once, with --key")
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
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="where the signed bundle goes (default: in place)"
    )
    add_passphrase_argument(parser)


def _add_verdict(parser: argparse.ArgumentParser) -> None:
    add_record_arguments(parser)
    parser.add_argument("--robot", metavar="NAME", help="robot it counts for: ur10e, or one unit, ur10e/cell-3")
    parser.add_argument("--days", type=int, default=90, metavar="N", help="how long it counts (default: 90)")
    add_requirement_arguments(parser)


def _run(arguments: argparse.Namespace) -> int:
    actions = {"pack": _pack, "inspect": _inspect, "verify": _verify, "sign": _sign, "diff": _diff}
    return actions[arguments.action](arguments)


def _pack(arguments: argparse.Namespace) -> int:
    from physai.sdk.bundle.manifest import ManifestFacts, pack, read_bundle
    from physai.sdk.bundle.source import find_export, read_members
    from physai.sdk.signing.sign import sign_bundle

    created = _created(arguments.created)
    facts = ManifestFacts(
        version=int(created.timestamp()) if arguments.version is None else arguments.version,
        created=created,
        provenance={} if arguments.note is None else {"note": arguments.note},
    )
    members = read_members(find_export(arguments.policy), _variants(arguments.variants))
    data = pack(members, facts)
    if arguments.sign or arguments.key is not None:
        data = sign_bundle(read_bundle(data), _load_key(arguments, "publisher", arguments.key))
    if arguments.verdict is not None:
        data = _with_verdict(read_bundle(data), arguments, _load_key(arguments, "validator", arguments.validator_key))
    bundle = read_bundle(data)
    return _write(bundle, data, arguments.out or Path(f"{bundle.manifest.task.replace('/', '-')}.physai"), arguments)


def _created(text: str | None) -> datetime:
    """The time a bundle states: as asked for, else as builds that are to be reproduced say it, else now."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if text is not None:
        return _time("--created", text)
    if epoch is None:
        return datetime.now(UTC).replace(microsecond=0)
    try:
        return datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError):
        raise PhysaiError(f"SOURCE_DATE_EPOCH is {epoch!r}, expected seconds since 1970") from None


def _time(option: str, text: str) -> datetime:
    from physai.sdk.signing.verify import parse_utc

    try:
        return parse_utc(text)
    except ValueError:
        raise PhysaiError(f"{option} {text!r}: expected UTC as {_TIME}") from None


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
    from physai.sdk.signing.keys import PRIVATE_SUFFIX, KeyFileError, check_role, load_private_key

    path = path or key_folder() / f"{role}{PRIVATE_SUFFIX}"
    if not path.exists():
        raise KeyFileError(f"{path}: no such key; make keys with: physai keys init")
    key = load_private_key(path, passphrase=passphrase_from(arguments.passphrase_file))
    check_role(path, key, role)
    return key


def _with_verdict(bundle: Bundle, arguments: argparse.Namespace, key: SigningKey) -> bytes:
    from physai.sdk.signing.sign import sign_verdict

    verdict = rederived(bundle, arguments)
    return sign_verdict(
        bundle,
        key,
        verdict,
        robot=arguments.robot,
        now=datetime.now(UTC),
        lifetime=timedelta(days=min(max(arguments.days, 0), 10**6)),
        requirements=requirements_from(arguments),
        replace=getattr(arguments, "replace", False),
    )


def _sign(arguments: argparse.Namespace) -> int:
    from physai.sdk.bundle.manifest import read_bundle
    from physai.sdk.signing.sign import sign_bundle

    role: Role = arguments.role or ("publisher" if arguments.verdict is None else "validator")
    if role == "publisher" and arguments.verdict is not None:
        raise PhysaiError("a verdict is signed by a validator: leave --role publisher out")
    bundle = read_bundle(arguments.bundle)
    key = _load_key(arguments, role, arguments.key)
    if role == "publisher":
        data = sign_bundle(bundle, key, replace=arguments.replace)
    else:
        data = _with_verdict(bundle, arguments, key)
    return _write(read_bundle(data), data, arguments.out or arguments.bundle, arguments)


def _write(bundle: Bundle, data: bytes, path: Path, arguments: argparse.Namespace) -> int:
    from physai.sdk.base.files import write_atomic
    from physai.sdk.cli.bundle_text import record, summary

    try:
        write_atomic(path, data)
        path.chmod(0o644)
    except OSError as error:
        raise PhysaiError(f"{path}: cannot be written: {error.strerror}") from None
    print(json.dumps(record(bundle, path), indent=2) if arguments.json else printable(summary(bundle, path)))
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    from physai.sdk.base.files import write_atomic
    from physai.sdk.bundle.manifest import read_bundle
    from physai.sdk.cli.bundle_text import record, sections
    from physai.sdk.signing.bom import bom_text

    bundle = read_bundle(arguments.bundle)
    if arguments.bom is not None:
        try:
            write_atomic(arguments.bom, bom_text(bundle).encode())
        except OSError as error:
            raise PhysaiError(f"{arguments.bom}: cannot be written: {error.strerror}") from None
    if arguments.json:
        print(json.dumps(record(bundle, arguments.bundle), indent=2, ensure_ascii=False))
    else:
        print(printable(sections(bundle, arguments.bundle)))
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    from physai.sdk.bundle.archive import read_file
    from physai.sdk.signing.trust_file import SignedTrust
    from physai.sdk.signing.verify import VerificationError, verify

    trust = SignedTrust.load(arguments.trust or default_trust()).check()
    now = datetime.now(UTC) if arguments.at is None else _time("--at", arguments.at)
    data = read_file(arguments.bundle)
    robot = arguments.robot or _model(data)
    try:
        found = verify(
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
    _print_accepted(found, robot, as_json=arguments.json)
    return 0


def _model(data: bytes) -> str:
    """The robot model a bundle is for; of a damaged one, which no robot accepts, none."""
    from physai.sdk.bundle.archive import BundleError
    from physai.sdk.bundle.manifest import read_bundle

    try:
        return read_bundle(data).manifest.robot
    except BundleError:
        return "any robot"


def _print_accepted(found: Verified, robot: str, *, as_json: bool) -> None:
    from physai.sdk.evidence.verdict import utc_text

    verdict = found.verdict
    expires = None if verdict is None else utc_text(verdict.expires)
    if as_json:
        facts = {
            "accepted": True,
            "robot": robot,
            "id": found.bundle.id,
            "version": found.bundle.manifest.version,
            "policy": found.policy,
            "expires": expires,
            "verdict_problem": found.verdict_problem,
            "signers": {role: list(keys) for role, keys in found.signers.items()},
        }
        print(json.dumps(facts, indent=2))
        return
    signers = ", ".join(f"{role} {key[:16]}" for role, keys in found.signers.items() for key in keys)
    print(printable(f"bundle     {found.bundle.id}, version {found.bundle.manifest.version}"))
    print(printable(f"signed by  {signers}"))
    print(f"runs       {found.policy}" + ("" if expires is None else f", until {expires}"))
    if verdict is None:
        print(
            f"{styled('ACCEPTED WITHOUT A VERDICT', 'red', sys.stdout)} by {printable(robot)}: {found.verdict_problem}"
        )
    else:
        print(f"{styled('ACCEPTED', 'green', sys.stdout)} by {printable(robot)}")


def _diff(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from physai.sdk.bundle.manifest import read_bundle
    from physai.sdk.cli.bundle_text import differences_text
    from physai.sdk.signing.diff import diff_bundles

    left, right = read_bundle(arguments.left), read_bundle(arguments.right)
    differences = diff_bundles(left, right)
    if arguments.json:
        shown = {"same": not differences, "left": left.id, "right": right.id}
        print(json.dumps({**shown, "differences": [asdict(one) for one in differences]}, indent=2, ensure_ascii=False))
    elif differences:
        print(printable(differences_text(differences, str(arguments.left), str(arguments.right))))
    else:
        print(f"same bundle, id {left.id}")
    return 1 if differences else 0


command = CliCommand(
    summary="pack, inspect, verify, sign and compare bundles",
    add_arguments=_add_arguments,
    run=_run,
)
