"""`physai play`: shows, films or records a policy in simulation."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import signal
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.compute.cli.options import progress_bar, require_range
from physai.sdk.base.errors import PhysaiError, TaskError, unknown_name
from physai.sdk.base.files import require_replaceable
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from physai.service.view.counterexample import RecordedPlayer
    from physai.sim.playback.moment import EpisodeOutcome, Moment
    from physai.sim.playback.picture_subject import Scene
    from physai.sim.playback.player import EpisodePlayer
    from physai.sim.policies.evaluate import Policy
    from physai.sim.tasks.task import Task

MAX_EPISODES = 100_000
MAX_DURATION_S = 86_400.0
MAX_SEED = 2**63 - 1
INTERRUPTED = 130
"""Exit code of a command that was interrupted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai play`."""
    parser.add_argument(
        "what",
        metavar="TASK|RUN|POLICY|REPORT",
        help="task (name or Python file), run folder, exported policy.onnx, a team or its run folder, or with "
        "--counterexample a report folder",
    )
    parser.add_argument(
        "--counterexample", type=int, metavar="N", help="show counterexample N of a report of `physai sim validate`"
    )
    parser.add_argument(
        "--task", help="task name, Python file, or run folder whose copy is to be run, if the task is not built in"
    )
    parser.add_argument("--robot", help="robot to use (MJCF, URDF or name), for tasks that accept another one")
    parser.add_argument("--preset", help="variant of the task, such as realaigym-v2")
    parser.add_argument("--agent", help="scripted agent for a task without a policy: zero (default), random or hold")
    parser.add_argument(
        "--web",
        type=int,
        nargs="?",
        const=8080,
        metavar="PORT",
        help="show it in a browser of this machine instead of a window (default port: 8080, or the next that is free)",
    )
    parser.add_argument("--video", type=Path, metavar="MP4", help="write a video instead of opening a window")
    parser.add_argument("--width", type=int, default=640, help="width of the video [pixels] (default: 640)")
    parser.add_argument("--height", type=int, default=480, help="height of the video [pixels] (default: 480)")
    parser.add_argument("--fps", type=float, default=25.0, help="frames per second of the video (default: 25)")
    parser.add_argument("--no-labels", action="store_true", help="no time, commands and successes in the video")
    parser.add_argument("--record", type=Path, metavar="MCAP", help="write a recording instead of opening a window")
    parser.add_argument(
        "--episodes",
        type=int,
        metavar="N",
        help="number of episodes (default: 1, or as many as fit --duration-s; in a window, until it is closed)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the episodes; 0 plays those of `physai eval`")
    parser.add_argument("--duration-s", type=float, metavar="S", help="simulated time to stop after [s]")
    parser.add_argument("--nominal", action="store_true", help="no randomised parameters, noise, delays or pushes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


@dataclass(frozen=True)
class _Session:
    """The task or team, and the policies or agent that play it."""

    scene: Scene
    played_by: str
    """Policy file, run folder of a team, or agent name."""

    @property
    def members(self) -> Mapping[str, Task]:
        """The robots' tasks; that of one alone has no name."""
        from physai.sim.tasks.task import Task

        return {"": self.scene} if isinstance(self.scene, Task) else self.scene.members


def run(arguments: argparse.Namespace) -> int:
    """Plays the episodes; does not need torch."""
    _check_numbers(arguments)
    _check_outputs(arguments)
    in_window = arguments.video is None and arguments.record is None
    # A window plays until it is closed; a file would never end.
    if arguments.episodes is None and arguments.duration_s is None and not in_window:
        arguments.episodes = 1
    session, player = _live(arguments) if arguments.counterexample is None else _recorded(arguments)
    with _stop_on_interrupt(player) as interrupts:
        if arguments.web is not None:
            from physai.service.cli.play_web import play_in_browser

            play_in_browser(player, session.scene, arguments.web, lambda: bool(interrupts))
        elif in_window:
            _play_in_window(player, session.scene)
        else:
            _play_into_files(player, session, arguments)
    interrupted = bool(interrupts)
    _report(player.outcomes, session, arguments, interrupted=interrupted)
    return INTERRUPTED if interrupted else 0


def _check_numbers(arguments: argparse.Namespace) -> None:
    if arguments.episodes is not None:
        require_range("--episodes", arguments.episodes, 1, MAX_EPISODES)
    if arguments.web is not None:
        require_range("--web", arguments.web, 0, 65_535)
        for option in ("video", "record"):
            if getattr(arguments, option) is not None:
                raise PhysaiError(f"--web plays in real time, --{option} as fast as it can; give one of them")
    require_range("--seed", arguments.seed, 0, MAX_SEED)
    duration = arguments.duration_s
    if duration is not None and not (math.isfinite(duration) and 0.0 < duration <= MAX_DURATION_S):
        raise PhysaiError(f"--duration-s must be above 0 and at most {MAX_DURATION_S:g} s, got {duration}")
    if not (math.isfinite(arguments.fps) and 1.0 <= arguments.fps <= 120.0):
        raise PhysaiError(f"--fps must lie in 1 … 120 frames per second, got {arguments.fps}")
    for option in ("width", "height"):
        pixels = getattr(arguments, option)
        if not 16 <= pixels <= 4096:
            raise PhysaiError(f"--{option} must lie in 16 … 4096 pixels, got {pixels}")


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Raises PhysaiError for files that cannot be written, before any slow work; leaves them unchanged."""
    for option, ending in (("video", ".mp4"), ("record", ".mcap")):
        path: Path | None = getattr(arguments, option)
        if path is None:
            continue
        if path.suffix.lower() != ending:
            raise PhysaiError(f"--{option} {path}: the file name must end in {ending}")
        # Opening creates a missing file, which must not stay behind if the run fails.
        existed = path.exists()
        try:
            require_replaceable(path)
            path.open("ab").close()
        except OSError as error:
            raise PhysaiError(f"--{option} {path}: cannot be written: {error.strerror}") from None
        if not existed:
            path.unlink()


def _live(arguments: argparse.Namespace) -> tuple[_Session, EpisodePlayer]:
    """A player that simulates policies or an agent."""
    from physai.sim.cli.team_verb import open_team
    from physai.sim.playback.player import Player, TeamPlayer

    options = {name: getattr(arguments, name) for name in ("episodes", "seed", "duration_s")}
    options["randomise"] = not arguments.nominal
    together = open_team(arguments)
    if together is not None:
        team, policies, played_by = together
        return _Session(team, played_by), TeamPlayer(policies, team, **options)
    policy, task, played_by = _open(arguments)
    return _Session(task, played_by), Player(policy, task, **options)


def _recorded(arguments: argparse.Namespace) -> tuple[_Session, RecordedPlayer]:
    """A player that replays the recording of a counterexample."""
    from physai.service.view.counterexample import RecordedPlayer, find_counterexample

    for option in ("agent", "preset", "record", "duration_s"):
        if getattr(arguments, option) is not None:
            raise PhysaiError(f"--counterexample replays a recording; omit --{option.replace('_', '-')}")
    case, path = find_counterexample(Path(arguments.what), arguments.counterexample)
    print(printable(f"counterexample {case.index}: {case.description}"), file=sys.stderr)
    player = RecordedPlayer(path, task=arguments.task, robot=arguments.robot)
    return _Session(player.task, str(path)), player


def _open(arguments: argparse.Namespace) -> tuple[Policy, Task, str]:
    from physai.sim.tasks.registry import BUILT_IN

    what: str = arguments.what
    if what in BUILT_IN or what.endswith(".py"):
        return _open_agent(arguments)
    path = Path(what)
    # A single word that is no file is more likely a misspelt task.
    if not path.exists() and path.suffix != ".onnx" and len(path.parts) == 1:
        raise unknown_name("task, run folder or policy", what, BUILT_IN)
    return _open_policy(path, arguments)


def _open_agent(arguments: argparse.Namespace) -> tuple[Policy, Task, str]:
    from physai.sim.policies.scripted import ScriptedPolicy
    from physai.sim.tasks.registry import load_task

    if arguments.task is not None:
        raise TaskError(f"{arguments.what} is already a task; omit --task {arguments.task}")
    task = load_task(arguments.what, robot=arguments.robot, preset=arguments.preset)
    name = arguments.agent or "zero"
    return ScriptedPolicy(task.contract, name, seed=arguments.seed), task, name


def _open_policy(path: Path, arguments: argparse.Namespace) -> tuple[Policy, Task, str]:
    from physai.sim.policies.onnx import OnnxPolicy
    from physai.sim.policies.resolve import find_origin, find_policy

    if arguments.agent is not None:
        raise PhysaiError(f"{path} is a policy; --agent {arguments.agent} needs a task: physai play TASK --agent …")
    file = find_policy(path)
    policy = OnnxPolicy.load(file)
    origin = find_origin(file, task=arguments.task, robot=arguments.robot, preset=arguments.preset)
    return policy, origin.load(), str(file)


@contextlib.contextmanager
def _stop_on_interrupt(player: EpisodePlayer | RecordedPlayer) -> Generator[list[int]]:
    """Makes Ctrl-C stop the player at the next moment, so that files are finished; yields the signals received."""
    interrupts: list[int] = []

    def stop(number: int, frame: Any) -> None:
        interrupts.append(number)
        player.stop()
        # A second Ctrl-C aborts at once.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)


def _play_in_window(player: EpisodePlayer | RecordedPlayer, scene: Scene) -> None:
    from physai.service.view.viewer import RealTimePacer, Window, watch

    with Window(scene) as window:
        watch(player, window, RealTimePacer())


def _play_into_files(player: EpisodePlayer | RecordedPlayer, session: _Session, arguments: argparse.Namespace) -> None:
    from physai.sim.playback.recordings.recording_writer import RecordingWriter
    from physai.sim.playback.video import Film

    with contextlib.ExitStack() as stack:
        sinks: list[Callable[[Moment], None]] = []
        if arguments.video is not None:
            size = {"width": arguments.width, "height": arguments.height, "fps": arguments.fps}
            film = Film(arguments.video, session.scene, **size, labelled=not arguments.no_labels)
            sinks.append(stack.enter_context(film).add)
        if arguments.record is not None:
            # Of one robot: a team is refused.
            (task,), origin = session.members.values(), _origin(session, arguments)
            sinks.append(stack.enter_context(RecordingWriter(arguments.record, task, origin=origin)).add)
        bar = stack.enter_context(progress_bar())
        line = bar.add_task(f"playing {session.scene.name}", total=1.0)
        episode_s = next(iter(session.members.values())).episode_length_s
        for moment in player:
            for add in sinks:
                add(moment)
            bar.update(line, completed=_progress(moment, episode_s, arguments))


def _progress(moment: Moment, episode_s: float, arguments: argparse.Namespace) -> float:
    """Fraction of the requested episodes or duration that has been played, 0 to 1."""
    episodes = moment.episode + moment.time_s / episode_s
    seconds = moment.start_s + moment.time_s
    return max(episodes / (arguments.episodes or math.inf), seconds / (arguments.duration_s or math.inf))


def _origin(session: _Session, arguments: argparse.Namespace) -> dict[str, str]:
    from importlib.metadata import version

    return {
        "played_by": session.played_by,
        "seed": str(arguments.seed),
        "randomised": json.dumps(not arguments.nominal),
        "physai": version("physai-sdk"),
    }


def _report(
    outcomes: list[EpisodeOutcome], session: _Session, arguments: argparse.Namespace, *, interrupted: bool
) -> None:
    files = {option: getattr(arguments, option) for option in ("video", "record")}
    judged, succeeded = sum(o.judged for o in outcomes), sum(o.succeeded for o in outcomes)
    if arguments.json:
        document = {
            **_identity(session),
            "played_by": session.played_by,
            "seed": arguments.seed,
            "randomised": not arguments.nominal,
            "judged": judged,
            "succeeded": succeeded,
            "interrupted": interrupted,
            **{option: None if path is None else str(path) for option, path in files.items()},
            "episodes": [outcome.as_json() for outcome in outcomes],
        }
        print(json.dumps(document))
        return
    print(printable(table(*_rows(outcomes), indent="")))
    verdict = f"{succeeded} of {judged} succeeded" if judged else "stopped before the first success check"
    criteria = "; ".join(dict.fromkeys(task.success.text for task in session.members.values()))
    print(printable(f"\n{session.scene.name}, {session.played_by}: {verdict} ({criteria})"))
    for option, path in files.items():
        if path is not None:
            print(printable(f"{option:<6}  {path}"))


def _identity(session: _Session) -> dict[str, Any]:
    """Identity of the played policy, as JSON."""
    alone = session.members.get("")
    if alone is not None:
        return {"task": alone.name, "fingerprint": alone.contract.fingerprint, "criterion": alone.success.text}
    members = {
        name: {"task": task.name, "fingerprint": task.contract.fingerprint, "criterion": task.success.text}
        for name, task in session.members.items()
    }
    return {"team": session.scene.name, "members": members}


def _rows(outcomes: list[EpisodeOutcome]) -> tuple[list[str], list[list[str]]]:
    metrics = sorted({name for outcome in outcomes for name in outcome.metrics})
    rows = [
        [
            str(outcome.episode),
            "-" if outcome.success is None else f"{outcome.succeeded} of {outcome.judged}",
            outcome.ended,
            f"{outcome.length_s:.2f}",
            f"{outcome.total_reward:.4g}",
            *(f"{outcome.metrics[name]:.4g}" if name in outcome.metrics else "-" for name in metrics),
        ]
        for outcome in outcomes
    ]
    return ["episode", "succeeded", "ended", "length [s]", "return", *metrics], rows


command = CliCommand(summary="show, film or record a policy in simulation", add_arguments=add_arguments, run=run)
"""The verb `play`."""
