"""`physai robot`: install, activate, commit and roll back policies on the robot this runs on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.deploy_jetson.cli.command import command_verb, shadow_verb
from physai.deploy_jetson.cli.measure import measure_verb
from physai.deploy_jetson.cli.revocations import revocations_verb
from physai.deploy_jetson.cli.run import run_verb
from physai.deploy_jetson.cli.top import top_verb
from physai.deploy_jetson.cli.upload_verb import upload_verb
from physai.deploy_jetson.update import operate
from physai.deploy_jetson.update.robot_tree import RobotTree, TreeOption, tree_of
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, styled
from physai.sdk.cli.shared.options import RequirementOptions
from physai.sdk.cli.verb import AsJson, Option, noun, verb

if TYPE_CHECKING:
    from typing import Annotated

    from physai.deploy_jetson.update.agent.agent import Installed
    from physai.deploy_jetson.update.agent.status import DoctorCheck, Status
    from physai.deploy_jetson.update.agent.watch import Watched
    from physai.deploy_jetson.update.slots.slot_records import VersionTrial


@verb(operate.set_up_robot, summary="create the slots, set the robot's name and its trusted keys")
def _setup(
    call: Callable[..., Path],
    *,
    robot: str,
    required: Annotated[RequirementOptions, Option(flatten=True)],
    tree: TreeOption,
    as_json: AsJson = False,
) -> int:
    """Set the robot up."""
    from physai.deploy_jetson.update.slots.layout import ROBOT_KEY_FILE
    from physai.sdk.signing.ed25519 import public_path

    root = call(tree=_told(tree), requirements=required.requirements())
    key = public_path(root / ROBOT_KEY_FILE)
    text = f"{root} is ready for {robot}\nits key is {key}; its owner enrols it with `physai keys trust`"
    return _print({"root": str(root), "robot": robot, "key": str(key)}, text, as_json=as_json)


@verb(operate.install, summary="put a bundle into the idle slot and test it there")
def _install(
    call: Callable[..., Installed], *, bundle: str | None, recipe: str | None, tree: TreeOption, as_json: AsJson = False
) -> int:
    """Install a bundle."""
    from physai.deploy_jetson.update.agent.incoming import parse_recipe
    from physai.sdk.bundle.archive import MAX_BUNDLE_BYTES

    given: dict[str, Any] = {}
    if bundle == "-":
        given["bundle"] = _standard_input(MAX_BUNDLE_BYTES)
    if recipe == "-":
        given["recipe"] = parse_recipe(_standard_input(operate.MAX_RECIPE_BYTES))
    if sys.stderr.isatty() and not as_json:
        given["progress"] = _progress
    result = call(**given, tree=_told(tree))
    marker, test = result.marker, result.marker.self_test
    record = {
        "slot": result.slot,
        "was_there": result.was_there,
        "active": result.active,
        "activated": result.activated,
        "marker": marker.model_dump(mode="json"),
    }
    what = "was installed already" if result.was_there else "installed"
    state = "now on trial" if result.activated else "active" if result.active else "not active"
    text = (
        f"version {marker.version} {what} in slot {result.slot}, {state}: {marker.runtime.member} on "
        f"{marker.runtime.backend}, {test.golden_states} golden states, 99 of 100 ticks within "
        f"{test.tick_p99_s * 1e3:.3g} ms of {test.deadline_s * 1e3:.3g} ms"
    )
    _print(record, text, as_json=as_json)
    if marker.unsafe_no_verdict:
        print(styled(f"version {marker.version} has NO VALID VERDICT", "red", sys.stderr), file=sys.stderr)
    return 0


def _standard_input(limit: int) -> bytes:
    try:
        # One byte more than allowed, to notice what is too long without reading all of it.
        data = sys.stdin.buffer.read(limit + 1)
    except OSError as error:
        raise PhysaiError(f"-: cannot be read: {error.strerror}") from None
    if not len(data) <= limit:
        raise PhysaiError(f"-: larger than the limit of {limit} bytes")
    return data


def _progress(stage: str, share: float) -> None:
    # The last step leaves the line on the terminal.
    end = "\n" if (stage, share) == ("seal", 1.0) else ""
    print(f"\r\x1b[K{stage} {share:4.0%}", end=end, file=sys.stderr, flush=True)


@verb(operate.activate, summary="switch to the installed version, on trial")
def _activate(
    call: Callable[..., VersionTrial], *, watch: bool = False, tree: TreeOption, as_json: AsJson = False
) -> int:
    """Activate a version.

    Args:
        watch: watch the trial until it ends: commit or roll back.
    """
    trial = call(tree=_told(tree))
    if watch:
        return _ended(operate.watch_trials(once=True, tree=_told(tree)), as_json=as_json)
    text = f"version {trial.version} is active in slot {trial.slot}, on trial"
    return _print(trial.model_dump(mode="json"), text, as_json=as_json)


@verb(operate.commit, summary="end the trial and keep the new version, if it is healthy")
def _commit(call: Callable[..., operate.TrialEnd], *, tree: TreeOption, as_json: AsJson = False) -> int:
    """Commit a version."""
    ended = call(tree=_told(tree))
    text = f"version {ended.version} is committed ({ended.reason}); older ones are refused from now on"
    return _print(vars(ended), text, as_json=as_json)


@verb(operate.rollback, summary="end the trial and return to the previous version")
def _rollback(call: Callable[..., operate.TrialEnd], *, tree: TreeOption, as_json: AsJson = False) -> int:
    """Roll a version back."""
    ended = call(tree=_told(tree))
    back = "no policy" if ended.slot is None else f"slot {ended.slot}"
    return _print(vars(ended), f"went back from version {ended.version} to {back}", as_json=as_json)


@verb(operate.robot_status, summary="show the versions, the trial, and the reason of the last rollback")
def _status(call: Callable[..., Status], *, tree: TreeOption, as_json: AsJson = False) -> int:
    """Show the status."""
    from physai.deploy_jetson.cli.robot_text import status_text

    status = call(tree=_told(tree))
    return _print(_plain(status), "" if as_json else status_text(status), as_json=as_json)


@verb(operate.collect_garbage, summary="remove uploads and unfinished installations")
def _gc(call: Callable[..., int], *, tree: TreeOption, as_json: AsJson = False) -> int:
    """Free disk space."""
    freed = call(tree=_told(tree))
    return _print({"freed_bytes": freed}, f"freed {freed} bytes", as_json=as_json)


@verb(operate.robot_time, summary="show the trusted time, by which verdicts expire")
def _time(
    call: Callable[..., operate.RobotTime], *, statement: Path | None, tree: TreeOption, as_json: AsJson = False
) -> int:
    """Show the time."""
    from physai.sdk.signing.time_statement import MAX_STATEMENT_BYTES

    given = {"statement": _standard_input(MAX_STATEMENT_BYTES)} if str(statement) == "-" else {}
    time = call(**given, tree=_told(tree))
    text = f"clock {time.clock}, certainly later than {time.floor}; verdicts expire by the later of the two"
    back = f"\nset back {time.corrections} times: physai keys time --corrections {time.corrections}"
    return _print(vars(time), text + (back if time.corrections else ""), as_json=as_json)


@verb(operate.examine_robot, summary="diagnose what prevents the robot from running or installing a policy")
def _doctor(call: Callable[..., list[DoctorCheck]], *, tree: TreeOption, as_json: AsJson = False) -> int:
    """Examine the robot."""
    from physai.deploy_jetson.cli.robot_text import checks_text

    checks = call(tree=_told(tree))
    _print({"checks": _plain(checks)}, "" if as_json else checks_text(checks), as_json=as_json)
    return 0 if all(check.ok for check in checks) else 1


@verb(operate.recover, summary="finish or undo what a power cut interrupted; run at start-up")
def _recover(call: Callable[..., tuple[str, ...]], *, tree: TreeOption, as_json: AsJson = False) -> int:
    """Recover the robot."""
    actions = call(tree=_told(tree))
    return _print({"actions": list(actions)}, "\n".join(actions) or "nothing to recover", as_json=as_json)


@verb(operate.watch_trials, summary="commit or roll back versions on trial by the runtime's counters")
def _watch(call: Callable[..., Watched], *, once: bool, tree: TreeOption, as_json: AsJson = False) -> int:
    """Watch trials.

    exit code: with --once 1 if the trial was rolled back, else 0
    """
    from physai.deploy_jetson.runtime.system.service_manager import ServiceManager

    def ended(watched: Watched) -> None:
        if not once:
            print(json.dumps(vars(watched)) if as_json else _end_text(watched), flush=True)

    manager = ServiceManager()
    # Units that wait for this one find a robot that is in order.
    watch = {"started": manager.ready, "ended": ended, "sleep": manager.sleep}
    if once:
        return _ended(call(tree=_told(tree), **watch), as_json=as_json)
    # Ctrl-C, or the end of a launch, may interrupt it anywhere.
    with suppress(KeyboardInterrupt):
        call(tree=_told(tree), **watch)
    return 0


def _ended(watched: Watched, *, as_json: bool) -> int:
    _print(vars(watched), _end_text(watched), as_json=as_json)
    return 1 if watched.end == "rolled-back" else 0


def _end_text(watched: Watched) -> str:
    version = "" if watched.version is None else f"version {watched.version} "
    return f"{version}{watched.end}: {watched.reason}"


@verb(operate.missing_members, summary="print which of these members (SHA-256) this robot lacks")
def _missing(call: Callable[..., list[str]], *, tree: TreeOption, as_json: AsJson = False) -> int:
    """List missing members."""
    digests = call(tree=_told(tree))
    return _print({"missing": digests}, "\n".join(digests), as_json=as_json)


@verb(summary="receive a bundle from `physai flash` over standard input and output")
def _receive(*, tree: TreeOption = None, as_json: AsJson = False) -> int:
    """Receive a bundle."""
    from physai.deploy_jetson.update.flash.receiving.receiver import serve

    robot = tree_of(tree)
    return serve(robot.path, robot.config_path)


def _told(tree: RobotTree | Path | str | None) -> RobotTree:
    """The tree, with warnings on stderr."""

    def warn(message: str) -> None:
        print(styled("physai: note:", "bold", sys.stderr), printable(message), file=sys.stderr)

    return replace(tree_of(tree), warn=warn)


def _plain(value: Any) -> Any:
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)


def _print(record: Any, text: str, *, as_json: bool) -> int:
    """Print a result as text, or with `--json` as JSON; return the exit code 0."""
    print(json.dumps(record, indent=2) if as_json else text)
    return 0


command = noun(
    "install, activate, commit and roll back policies on this robot",
    {
        "setup": _setup,
        "install": _install,
        "activate": _activate,
        "commit": _commit,
        "rollback": _rollback,
        "status": _status,
        "gc": _gc,
        "time": _time,
        "revocations": revocations_verb,
        "doctor": _doctor,
        "recover": _recover,
        "watch": _watch,
        "missing": _missing,
        "receive": _receive,
        "run": run_verb,
        "command": command_verb,
        "shadow": shadow_verb,
        "top": top_verb,
        "upload": upload_verb,
        "measure": measure_verb,
    },
    old_names={"tell": "command"},
)
