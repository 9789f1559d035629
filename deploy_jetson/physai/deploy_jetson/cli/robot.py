"""`physai robot`: install, activate, commit and roll back policies on the robot this runs on."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.deploy_jetson.cli import command as runtime_command
from physai.deploy_jetson.cli import measure, run, top
from physai.deploy_jetson.update.slots.layout import DEFAULT_CONFIG, DEFAULT_ROOT
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import open_plain
from physai.sdk.base.terminal import printable, styled
from physai.sdk.cli.command import CliCommand
from physai.sdk.cli.shared.verdict_options import add_requirement_arguments, requirements_from

if TYPE_CHECKING:
    from physai.deploy_jetson.inference.backend import BackendChoice
    from physai.deploy_jetson.update.agent.agent import UpdateAgent
    from physai.deploy_jetson.update.agent.watch import TrialWatcher, Watched

ROOT_VARIABLE = "PHYSAI_ROBOT_ROOT"
MAX_WAIT_S = 86400.0
MAX_RECIPE_BYTES = 1 << 16


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_setup(actions.add_parser("setup", help="create the slots, set the robot's name and its trusted keys"))
    _add_install(actions.add_parser("install", help="put a bundle into the idle slot and test it there"))
    activate = actions.add_parser("activate", help="switch to the installed version, on trial")
    activate.add_argument("--retry", action="store_true", help="even if that bundle was rolled back before")
    activate.add_argument("--watch", action="store_true", help="watch the trial until it ends: commit or roll back")
    commit = actions.add_parser("commit", help="end the trial and keep the new version, if it is healthy")
    commit.add_argument("--now", action="store_true", help="before its health window has passed; the log records that")
    rollback = actions.add_parser("rollback", help="end the trial and return to the previous version")
    rollback.add_argument("--reason", default="by hand", metavar="TEXT", help="what `status` will show")
    actions.add_parser("status", help="show the versions, the trial, and the reason of the last rollback")
    gc = actions.add_parser("gc", help="remove uploads and unfinished installations")
    gc.add_argument("--idle", action="store_true", help="also remove the version that is installed but not active")
    clock = actions.add_parser("time", help="show the trusted time, by which verdicts expire")
    clock.add_argument("--statement", type=Path, metavar="FILE", help="accept a signed statement of `physai keys time`")
    actions.add_parser("doctor", help="diagnose what prevents the robot from running or installing a policy")
    actions.add_parser("recover", help="finish or undo what a power cut interrupted; run at start-up")
    watch = actions.add_parser("watch", help="commit or roll back versions on trial by the runtime's counters")
    watch.add_argument(
        "--once", action="store_true", help="end with the current trial; exit code 1 if it was rolled back"
    )
    absent = actions.add_parser("missing", help="print which of these members (SHA-256) this robot lacks")
    absent.add_argument("digests", nargs="+", metavar="SHA256")
    actions.add_parser("receive", help="receive a bundle from `physai flash` over standard input and output")
    run.add_arguments(actions.add_parser("run", help="drive this robot with the active policy"))
    runtime_command.add_arguments(
        actions.add_parser("command", aliases=["tell"], help="send a command to the runtime that drives this robot")
    )
    top.add_arguments(actions.add_parser("top", help="watch the runtime that drives this robot"))
    # Aliases share a parser.
    for action in dict.fromkeys(actions.choices.values()):
        action.add_argument("--root", type=Path, metavar="DIR", help=f"the robot's tree (default: {DEFAULT_ROOT})")
        action.add_argument(
            "--config",
            type=Path,
            metavar="DIR",
            help=f"the owner's files (default: {DEFAULT_CONFIG} of the default tree; in any other, the tree)",
        )
        action.add_argument("--json", action="store_true", help="print one JSON object")
        action.add_argument("--wait", type=float, default=0.0, metavar="S", help="wait for another command to end")
    measure.add_arguments(actions.add_parser("measure", help="time a policy's ticks here, for its latency gate"))


def _add_setup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--robot", required=True, metavar="NAME", help="model, or MODEL/UNIT, as named in verdicts")
    parser.add_argument("--joints", metavar="A,B,…", help="joints of this robot; policies for others are refused")
    parser.add_argument("--trust", type=Path, metavar="FILE", help="trust file, from `physai keys trust`")
    add_requirement_arguments(parser)
    parser.add_argument("--stand-in", action="store_true", help="mark a simulation that takes the place of a robot")
    parser.add_argument("--unit", metavar="UNIT", help="systemd unit of the runtime, restarted after a switch")
    parser.add_argument(
        "--window", type=float, metavar="S", help="health window: seconds of ticks required of a version on trial"
    )
    parser.add_argument(
        "--max-interventions", type=int, metavar="N", help="limit of ticks in which the guard intervenes"
    )
    parser.add_argument(
        "--max-missed", type=float, metavar="SHARE", help="limit of the share of ticks that miss their deadline"
    )


def _add_install(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("bundle", nargs="?", metavar="BUNDLE", help="file, or - for standard input")
    source.add_argument("--recipe", metavar="FILE", help="JSON object of SHA-256 by member, from uploads; - for stdin")
    parser.add_argument("--unsafe-no-verdict", action="store_true", help="without a valid verdict; shown by status")
    parser.add_argument("--again", action="store_true", help="even if it is already installed")
    parser.add_argument("--backend", choices=("auto", "onnxruntime", "tensorrt"), default="auto", metavar="NAME")
    parser.add_argument("--activate", action="store_true", help="also activate it")


def _run(arguments: argparse.Namespace) -> int:
    wait_s: float = getattr(arguments, "wait", 0.0)
    # argparse accepts `nan` and `inf` as numbers.
    if not (math.isfinite(wait_s) and 0.0 <= wait_s <= MAX_WAIT_S):
        raise PhysaiError(f"--wait must lie in 0 … {MAX_WAIT_S:g} s, got {wait_s:g}")
    # These make the tree, say themselves that it is missing, or can do without the usual one.
    free = ("setup", "doctor", "receive", *(("measure",) if arguments.root is None else ()))
    if arguments.action not in free and not (root := _root(arguments)).is_dir():
        raise PhysaiError(f"{root}: no such folder; create it with `physai robot setup`, or name another with --root")
    if arguments.action == "measure":
        return measure.run(_root(arguments), arguments)
    if arguments.action in _ON_ROOT:
        return _ON_ROOT[arguments.action](_root(arguments), arguments)
    if arguments.action == "receive":
        from physai.deploy_jetson.update.flash.receiving.receiver import serve

        return serve(_root(arguments), arguments.config)
    return _ACTIONS[arguments.action](_agent(arguments), arguments)


def _root(arguments: argparse.Namespace) -> Path:
    return arguments.root or Path(os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)


def _agent(arguments: argparse.Namespace) -> UpdateAgent:
    from physai.deploy_jetson.update.agent.agent import UpdateAgent

    backend: BackendChoice = getattr(arguments, "backend", "auto")
    return UpdateAgent(
        root=_root(arguments), config_root=arguments.config, wait_s=arguments.wait, backend=backend, warn=_warn
    )


def _warn(message: str) -> None:
    print(styled("physai: note:", "bold", sys.stderr), printable(message), file=sys.stderr)


def _setup(agent: UpdateAgent, arguments: argparse.Namespace) -> int:
    from pydantic import ValidationError

    from physai.deploy_jetson.update.slots.slot_records import HealthLimits, RobotIdentity
    from physai.sdk.signing.trust_file import SignedTrust

    joints = None if arguments.joints is None else tuple(arguments.joints.split(","))
    given = {
        "window_s": arguments.window,
        "max_interventions": arguments.max_interventions,
        "max_missed_share": arguments.max_missed,
    }
    set_limits = {name: value for name, value in given.items() if value is not None}
    try:
        identity = RobotIdentity(
            robot=arguments.robot, joints=joints, runtime_unit=arguments.unit, stand_in=arguments.stand_in
        )
        limits = HealthLimits.model_validate(set_limits) if set_limits else None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise PhysaiError(f"{first['loc'][0]}: {first['msg']} (got {first['input']!r})") from None
    trust = None if arguments.trust is None else SignedTrust.load(arguments.trust)
    agent.setup(identity, trust, limits, requirements_from(arguments))
    return _print(
        arguments, {"root": str(agent.root), "robot": identity.robot}, f"{agent.root} is ready for {identity.robot}"
    )


def _install(agent: UpdateAgent, arguments: argparse.Namespace) -> int:
    from physai.deploy_jetson.update.agent.tested import no_progress

    data = _bundle(agent, arguments)
    show = _progress if sys.stderr.isatty() and not arguments.json else no_progress
    unsafe, again = arguments.unsafe_no_verdict, arguments.again
    result = agent.install(data, unsafe_no_verdict=unsafe, again=again, progress=show)
    marker = result.marker
    activated = arguments.activate and not result.active
    if activated:
        agent.activate()
    record = {
        "slot": result.slot,
        "was_there": result.was_there,
        "active": result.active or activated,
        "activated": activated,
        "marker": marker.model_dump(mode="json"),
    }
    what = "was installed already" if result.was_there else "installed"
    state = "active" if result.active else "now on trial" if activated else "not active"
    test = marker.self_test
    text = (
        f"version {marker.version} {what} in slot {result.slot}, {state}: {marker.runtime.member} on "
        f"{marker.runtime.backend}, {test.golden_states} golden states, 99 of 100 ticks within "
        f"{test.tick_p99_s * 1e3:.3g} ms of {test.deadline_s * 1e3:.3g} ms"
    )
    _print(arguments, record, text)
    if marker.unsafe_no_verdict:
        print(styled(f"version {marker.version} has NO VALID VERDICT", "red", sys.stderr), file=sys.stderr)
    return 0


def _bundle(agent: UpdateAgent, arguments: argparse.Namespace) -> bytes:
    from physai.deploy_jetson.update.agent.incoming import assemble, parse_recipe
    from physai.sdk.bundle.archive import MAX_BUNDLE_BYTES
    from physai.sdk.bundle.manifest import read_file

    if arguments.recipe is not None:
        return assemble(agent.store, parse_recipe(_input(arguments.recipe, MAX_RECIPE_BYTES)))
    return _input("-", MAX_BUNDLE_BYTES) if arguments.bundle == "-" else read_file(Path(arguments.bundle))


def _input(name: str, limit: int) -> bytes:
    try:
        if name == "-":
            # One byte more than allowed, to notice what is too long without reading all of it.
            data = sys.stdin.buffer.read(limit + 1)
        else:
            with open_plain(Path(name)) as file:
                data = file.read(limit + 1)
    except OSError as error:
        raise PhysaiError(f"{name}: cannot be read: {error.strerror}") from None
    if not len(data) <= limit:
        raise PhysaiError(f"{name}: larger than the limit of {limit} bytes")
    return data


def _progress(stage: str, share: float) -> None:
    # The last step leaves the line on the terminal.
    end = "\n" if (stage, share) == ("seal", 1.0) else ""
    print(f"\r\x1b[K{stage} {share:4.0%}", end=end, file=sys.stderr, flush=True)


def _activate(agent: UpdateAgent, arguments: argparse.Namespace) -> int:
    trial = agent.activate(retry=arguments.retry)
    if arguments.watch:
        return _report_end(_watcher(agent), arguments)
    text = f"version {trial.version} is active in slot {trial.slot}, on trial"
    return _print(arguments, trial.model_dump(mode="json"), text)


def _commit(agent: UpdateAgent, arguments: argparse.Namespace) -> int:
    from physai.deploy_jetson.update.slots.health import Health

    # A commit by hand has to know what the counters say, even if it overrules them.
    finding = _watcher(agent).look()
    reason = "by hand"
    if finding is not None and finding.health is Health.HEALTHY:
        reason = finding.reason
    elif finding is not None and not arguments.now:
        raise PhysaiError(
            f"not committed, {finding.health.value}: {finding.reason}; wait, or commit regardless with --now"
        )
    elif finding is not None:
        reason = f"by hand, although {finding.health.value}: {finding.reason}"
    trial = agent.commit(reason)
    text = f"version {trial.version} is committed ({reason}); older ones are refused from now on"
    return _print(arguments, {"version": trial.version, "slot": trial.slot, "reason": reason}, text)


def _rollback(agent: UpdateAgent, arguments: argparse.Namespace) -> int:
    trial = agent.rollback(arguments.reason)
    back = "no policy" if trial.previous is None else f"slot {trial.previous}"
    record = {"version": trial.version, "slot": trial.previous, "reason": arguments.reason}
    return _print(arguments, record, f"went back from version {trial.version} to {back}")


def _status(agent: UpdateAgent, arguments: argparse.Namespace) -> int:
    from physai.deploy_jetson.cli.robot_text import status_text
    from physai.deploy_jetson.update.agent.status import read_status

    status = read_status(agent)
    return _print(arguments, _plain(status), "" if arguments.json else status_text(status))


def _time(agent: UpdateAgent, arguments: argparse.Namespace) -> int:
    from physai.sdk.evidence.verdict import utc_text
    from physai.sdk.signing.time_statement import MAX_STATEMENT_BYTES

    if arguments.statement is not None:
        agent.set_time(_input(str(arguments.statement), MAX_STATEMENT_BYTES))
    state = agent.store.state()
    record = {"clock": utc_text(agent.clock()), "floor": state.latest_time, "corrections": state.corrections}
    text = f"clock {record['clock']}, certainly later than {state.latest_time}; verdicts expire by the later of the two"
    back = f"\nset back {state.corrections} times: physai keys time --corrections {state.corrections}"
    return _print(arguments, record, text + (back if state.corrections else ""))


def _gc(agent: UpdateAgent, arguments: argparse.Namespace) -> int:
    freed = agent.gc(idle=arguments.idle)
    return _print(arguments, {"freed_bytes": freed}, f"freed {freed} bytes")


def _doctor(agent: UpdateAgent, arguments: argparse.Namespace) -> int:
    from physai.deploy_jetson.cli.robot_text import checks_text
    from physai.deploy_jetson.update.agent.status import examine

    checks = examine(agent)
    _print(arguments, {"checks": _plain(checks)}, "" if arguments.json else checks_text(checks))
    return 0 if all(check.ok for check in checks) else 1


def _recover(agent: UpdateAgent, arguments: argparse.Namespace) -> int:
    actions = agent.recover().actions
    return _print(arguments, {"actions": list(actions)}, "\n".join(actions) or "nothing to recover")


def _watch(agent: UpdateAgent, arguments: argparse.Namespace) -> int:
    from physai.deploy_jetson.runtime.system.service_manager import ServiceManager

    manager = ServiceManager()
    agent.recover()
    # After `recover`: units that wait for this one find a robot that is in order.
    manager.ready()
    watcher = _watcher(agent, manager.sleep)
    if arguments.once:
        return _report_end(watcher, arguments)

    def ended(watched: Watched) -> None:
        line = json.dumps(vars(watched)) if arguments.json else _end_text(watched)
        print(line, flush=True)

    # Ctrl-C, or the end of a launch, may interrupt it anywhere.
    with suppress(KeyboardInterrupt):
        watcher.watch_forever(ended)
    return 0


def _watcher(agent: UpdateAgent, sleep: Callable[[float], None] = time.sleep) -> TrialWatcher:
    from physai.deploy_jetson.update.agent.watch import TrialWatcher

    return TrialWatcher(agent, sleep=sleep)


def _report_end(watcher: TrialWatcher, arguments: argparse.Namespace) -> int:
    watched = watcher.watch_trial()
    _print(arguments, vars(watched), _end_text(watched))
    return 1 if watched.end == "rolled-back" else 0


def _end_text(watched: Watched) -> str:
    version = "" if watched.version is None else f"version {watched.version} "
    return f"{version}{watched.end}: {watched.reason}"


def _missing(agent: UpdateAgent, arguments: argparse.Namespace) -> int:
    from physai.deploy_jetson.update.agent.incoming import missing

    digests = missing(agent.store, arguments.digests)
    return _print(arguments, {"missing": digests}, "\n".join(digests))


def _plain(value: Any) -> Any:
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)


def _print(arguments: argparse.Namespace, record: Any, text: str) -> int:
    """Print a result as text, or with `--json` as JSON; return the exit code 0."""
    print(json.dumps(record, indent=2) if arguments.json else text)
    return 0


_ON_ROOT = {"run": run.run, "command": runtime_command.run, "tell": runtime_command.run, "top": top.run}

_ACTIONS = {
    "setup": _setup,
    "install": _install,
    "activate": _activate,
    "commit": _commit,
    "rollback": _rollback,
    "status": _status,
    "time": _time,
    "gc": _gc,
    "doctor": _doctor,
    "recover": _recover,
    "watch": _watch,
    "missing": _missing,
}

command = CliCommand(
    summary="install, activate, commit and roll back policies on this robot", add_arguments=_add_arguments, run=_run
)
