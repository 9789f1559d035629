"""Show, film or record a policy in simulation."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from physai.sdk.base.errors import PhysaiError, TaskError, unknown_name
from physai.sdk.base.files import require_replaceable
from physai.sdk.base.parameters.arguments import require_range
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.service.view.playing.counterexample import RecordedPlayer
    from physai.sim.playback.moment import EpisodeOutcome, Moment
    from physai.sim.playback.picture_subject import Scene
    from physai.sim.playback.player import EpisodePlayer
    from physai.sim.policies.evaluate import Policy
    from physai.sim.tasks.task import Task

    Player = EpisodePlayer | RecordedPlayer
    Screen = Callable[[Player, Scene, Callable[[], bool]], None]

MAX_EPISODES = 100_000
MAX_DURATION_S = 86_400.0
MAX_SEED = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Playback:
    """Episodes that were played, and the files written."""

    scene: Scene
    """Task, or team."""
    played_by: str
    """Policy file, run folder of a team, or agent name."""
    outcomes: tuple[EpisodeOutcome, ...]
    interrupted: bool
    """Whether Ctrl-C ended it."""

    @property
    def members(self) -> Mapping[str, Task]:
        """The robots' tasks; that of one alone has no name."""
        return _members(self.scene)


@dataclass(frozen=True, kw_only=True)
class _Request:
    """Arguments of `play`."""

    what: str
    task: str | None
    model: str | None
    preset: str | None
    agent: str | None
    video: Path | None
    record: Path | None
    episodes: int | None
    seed: int
    duration_s: float | None
    nominal: bool


def play(
    what: Annotated[str | Path, Option(metavar="TASK|RUN|POLICY|REPORT")],
    *,
    counterexample: int | None = None,
    task: str | Path | None = None,
    model: Annotated[str | Path | None, Option(old=("--robot",), metavar="FILE")] = None,
    preset: str | None = None,
    agent: str | None = None,
    video: Annotated[Path | str | None, Option(metavar="MP4")] = None,
    width: int = 640,
    height: int = 480,
    fps: float = 25.0,
    labels: Annotated[bool, Option(help="no time, commands and successes in the video")] = True,
    record: Annotated[Path | str | None, Option(metavar="MCAP")] = None,
    episodes: int | None = None,
    seed: int = 0,
    duration_s: float | None = None,
    nominal: bool = False,
    screen: Screen | None = None,
    progress: Callable[[float], None] = lambda share: None,
    say: Callable[[str], None] = lambda text: None,
) -> Playback:
    """Play episodes of a policy or an agent in a window, into a video or into a recording; it does not need torch.

    In the main thread, Ctrl-C stops at the next moment, so that files are finished; a second one aborts at once.

    Args:
        what: task (name or Python file), run folder, exported policy.onnx, a team or its run folder, or with
            `counterexample` a report folder.
        counterexample: show counterexample N of a report of `physai sim validate`.
        task: task name, Python file, or run folder whose copy is to be run, if the task is not built in.
        model: robot to use (MJCF, URDF or name), for tasks that accept another one.
        preset: variant of the task, such as realaigym-v2.
        agent: scripted agent for a task without a policy: zero (default), random or hold.
        video: write a video instead of opening a window.
        width: width of the video [pixels].
        height: height of the video [pixels].
        fps: frames per second of the video.
        labels: show time, commands and successes in the video.
        record: write a recording instead of opening a window.
        episodes: number of episodes (default: 1, or as many as fit `duration_s`; in a window, until it is closed).
        seed: seed of the episodes; 0 plays those of `physai eval` (default).
        duration_s: simulated time to stop after [s].
        nominal: no randomised parameters, noise, delays or pushes.
        screen: shows the player instead of a window: called with the player, the scene, and a function that tells
            whether Ctrl-C was pressed.
        progress: called with the share that is played into files.
        say: called with a description of the counterexample.

    Returns:
        The outcomes of the episodes.

    Raises:
        DeviceError: no window can be opened here.
        TaskError: the policy's task has to be named.
        PhysaiError: an option is out of range or does not fit, or a file cannot be written.
    """
    _check_numbers(episodes, seed, duration_s, fps, {"width": width, "height": height})
    in_window = video is None and record is None
    request = _Request(
        what=str(what),
        task=None if task is None else str(task),
        model=None if model is None else str(model),
        preset=preset,
        agent=agent,
        video=_output("video", video, ".mp4"),
        record=_output("record", record, ".mcap"),
        # A window plays until it is closed; a file would never end.
        episodes=1 if episodes is None and duration_s is None and not in_window else episodes,
        seed=seed,
        duration_s=duration_s,
        nominal=nominal,
    )
    scene, played_by, player = _live(request) if counterexample is None else _recorded(request, counterexample, say)
    with _stop_on_interrupt(player) as interrupts:
        if not in_window:
            film = {"width": width, "height": height, "fps": fps, "labelled": labels}
            _into_files(player, scene, played_by, request, film, progress)
        elif screen is not None:
            screen(player, scene, lambda: bool(interrupts))
        else:
            _in_window(player, scene)
    return Playback(scene=scene, played_by=played_by, outcomes=tuple(player.outcomes), interrupted=bool(interrupts))


def _members(scene: Scene) -> Mapping[str, Task]:
    from physai.sim.tasks.task import Task

    return {"": scene} if isinstance(scene, Task) else scene.members


def _check_numbers(
    episodes: int | None, seed: int, duration_s: float | None, fps: float, sizes: Mapping[str, int]
) -> None:
    if episodes is not None:
        require_range("episodes", episodes, 1, MAX_EPISODES)
    require_range("seed", seed, 0, MAX_SEED)
    if duration_s is not None and not (math.isfinite(duration_s) and 0.0 < duration_s <= MAX_DURATION_S):
        raise PhysaiError(f"`duration_s` must be above 0 and at most {MAX_DURATION_S:g} s, got {duration_s}")
    if not (math.isfinite(fps) and 1.0 <= fps <= 120.0):
        raise PhysaiError(f"`fps` must lie in 1 … 120 frames per second, got {fps}")
    for name, pixels in sizes.items():
        if not 16 <= pixels <= 4096:
            raise PhysaiError(f"`{name}` must lie in 16 … 4096 pixels, got {pixels}")


def _output(name: str, path: Path | str | None, ending: str) -> Path | None:
    """The file, if it can be written; checked before any slow work, and left unchanged."""
    if path is None:
        return None
    path = Path(path)
    if path.suffix.lower() != ending:
        raise PhysaiError(f"`{name}` {path}: the file name must end in {ending}")
    # Opening creates a missing file, which must not stay behind if the run fails.
    existed = path.exists()
    try:
        require_replaceable(path)
        path.open("ab").close()
    except OSError as error:
        raise PhysaiError(f"`{name}` {path}: cannot be written: {error.strerror}") from None
    if not existed:
        path.unlink()
    return path


def _live(request: _Request) -> tuple[Scene, str, EpisodePlayer]:
    """A player that simulates policies or an agent."""
    from physai.sdk.onnx.device import CPU
    from physai.sdk.policy.team_record import holds_team
    from physai.sim.playback.player import Player, TeamPlayer
    from physai.sim.policies.scripted import ScriptedPolicy
    from physai.sim.tasks.registry import TEAMS
    from physai.sim.teams.team_registry import load_team
    from physai.sim.teams.trained_team import require_one_robot, trained_team

    options: dict[str, Any] = {
        "episodes": request.episodes,
        "seed": request.seed,
        "duration_s": request.duration_s,
        "randomise": not request.nominal,
    }
    folder, named = Path(request.what), request.what in TEAMS
    if not named and not holds_team(folder):
        policy, task, played_by = _open(request)
        return task, played_by, Player(policy, task, **options)
    names = ("task", "model", "preset", "record", *(() if named else ("agent",)))
    require_one_robot(request.what, {name: getattr(request, name) for name in names})
    policies: dict[str, Policy]
    if named:
        team, agent = load_team(request.what), request.agent or "zero"
        members = enumerate(team.members.items())
        policies = {m: ScriptedPolicy(task.contract, agent, seed=request.seed + i) for i, (m, task) in members}
        return team, agent, TeamPlayer(policies, team, **options)
    team, trained = trained_team(folder, CPU)
    policies = {**trained}
    return team, str(folder), TeamPlayer(policies, team, **options)


def _recorded(request: _Request, number: int, say: Callable[[str], None]) -> tuple[Scene, str, RecordedPlayer]:
    """A player that replays the recording of a counterexample."""
    from physai.service.view.playing.counterexample import RecordedPlayer, find_counterexample

    for name in ("agent", "preset", "record", "duration_s"):
        if getattr(request, name) is not None:
            raise PhysaiError(f"`counterexample` replays a recording; omit `{name}`")
    case, path = find_counterexample(Path(request.what), number)
    say(f"counterexample {case.index}: {case.description}")
    player = RecordedPlayer(path, task=request.task, robot=request.model)
    return player.task, str(path), player


def _open(request: _Request) -> tuple[Policy, Task, str]:
    from physai.sim.tasks.registry import BUILT_IN

    what = request.what
    if what in BUILT_IN or what.endswith(".py"):
        return _open_agent(request)
    path = Path(what)
    # A single word that is no file is more likely a misspelt task.
    if not path.exists() and path.suffix != ".onnx" and len(path.parts) == 1:
        raise unknown_name("task, run folder or policy", what, BUILT_IN)
    return _open_policy(path, request)


def _open_agent(request: _Request) -> tuple[Policy, Task, str]:
    from physai.sim.policies.scripted import ScriptedPolicy
    from physai.sim.tasks.registry import load_task

    if request.task is not None:
        raise TaskError(f"{request.what} is already a task; omit `task` {request.task}")
    task = load_task(request.what, robot=request.model, preset=request.preset)
    name = request.agent or "zero"
    return ScriptedPolicy(task.contract, name, seed=request.seed), task, name


def _open_policy(path: Path, request: _Request) -> tuple[Policy, Task, str]:
    from physai.sim.policies.onnx import OnnxPolicy
    from physai.sim.policies.resolve import find_origin, find_policy

    if request.agent is not None:
        raise PhysaiError(f"{path} is a policy; `agent` {request.agent} needs a task: physai play TASK --agent …")
    file = find_policy(path)
    policy = OnnxPolicy.load(file)
    origin = find_origin(file, task=request.task, robot=request.model, preset=request.preset)
    return policy, origin.load(), str(file)


@contextlib.contextmanager
def _stop_on_interrupt(player: Player) -> Generator[list[int]]:
    """Makes Ctrl-C stop the player at the next moment, so that files are finished; yields the signals received."""
    interrupts: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return

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


def _in_window(player: Player, scene: Scene) -> None:
    from physai.service.view.playing.viewer import RealTimePacer, Window, watch

    with Window(scene) as window:
        watch(player, window, RealTimePacer())


def _into_files(
    player: Player,
    scene: Scene,
    played_by: str,
    request: _Request,
    film: Mapping[str, Any],
    progress: Callable[[float], None],
) -> None:
    from physai.sim.playback.recordings.recording_writer import RecordingWriter
    from physai.sim.playback.video import Film

    members = _members(scene)
    with contextlib.ExitStack() as stack:
        sinks: list[Callable[[Moment], None]] = []
        if request.video is not None:
            sinks.append(stack.enter_context(Film(request.video, scene, **film)).add)
        if request.record is not None:
            # Of one robot: a team is refused.
            (task,), origin = members.values(), _origin(played_by, request)
            sinks.append(stack.enter_context(RecordingWriter(request.record, task, origin=origin)).add)
        episode_s = next(iter(members.values())).episode_length_s
        for moment in player:
            for add in sinks:
                add(moment)
            episodes = moment.episode + moment.time_s / episode_s
            seconds = moment.start_s + moment.time_s
            progress(max(episodes / (request.episodes or math.inf), seconds / (request.duration_s or math.inf)))


def _origin(played_by: str, request: _Request) -> dict[str, str]:
    from importlib.metadata import version

    return {
        "played_by": played_by,
        "seed": str(request.seed),
        "randomised": json.dumps(not request.nominal),
        "physai": version("physai-sdk"),
    }
