"""Field episodes from recordings: what happened on the robot, and in a replay of each in its twin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.parameters.arguments import MAX_SEED, require_range, several, writable_file
from physai.sdk.base.parameters.option import Option
from physai.sdk.evidence.field_episodes import FieldEpisode, FieldEpisodes, FieldEpisodesError, save_field_episodes

if TYPE_CHECKING:
    from physai.twin.logs import RobotLog
    from physai.twin.model.twin import Twin

FLIGHT_METADATA, SEGMENT = "physai.flight", "segment"
"""Metadata record of the flight recorder in an MCAP file, and its entry that says why a recording was made."""
_ANSWERS = {"yes": True, "no": False}


def field_episodes(
    twin: str | Path | Twin,
    policy: Path | str,
    logs: Sequence[str | Path],
    *,
    out: Annotated[Path | str | None, Option(flags=("-o",))] = Path("field.json"),
    task: str | None = None,
    model: Path | str | None = None,
    success: Mapping[str, str] | None = None,
    length_s: float | None = None,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> FieldEpisodes:
    """Pair scheduled recordings of a policy with replays in its twin, for `physai sim validate --field`.

    Each recording is an episode that begins in its first state. On the robot it succeeded if the task's success
    condition held at its end, in measured states of the joints. Its replay begins in the same state, with parameters,
    delay and noise drawn as by the gates. Tasks with objects, a floating base or commands cannot be judged so.

    Args:
        twin: twin.json.
        policy: run folder or policy.onnx that drove the robot; the recorded commands must be its own.
        logs: scheduled segments of the flight recorder, MCAP, one sample per control period.
        out: file to write; None writes none.
        task: task name, Python file, or run folder, if the policy's task is not built in.
        model: MJCF or URDF file of the task's robot, if its run folder does not keep it.
        success: outcomes on the robot that a person saw, yes or no, by the recording's file name without its ending;
            they replace the computed ones.
        length_s: length of an episode [s]; shorter recordings have failed. None for that of the task's episodes, or of
            the longest recording.
        seed: seed of the replays.
        progress: called with the share that is done.

    Raises:
        FieldEpisodesError: a recording is no scheduled segment of one robot, they are too few, or an outcome is none.
        LogError: the recordings are unreadable, were fitted, or are not of this policy.
        PhysaiError: an argument is out of range, or the file cannot be written.
    """
    from pydantic import ValidationError

    from physai.sdk.base.formats.canonical import sha256_hex
    from physai.sim.policies.onnx import OnnxPolicy, read_policy
    from physai.sim.policies.resolve import find_origin, find_policy
    from physai.twin.closed_loop.closed_loop import MIN_DRAWS, run_closed_loop
    from physai.twin.logs import read_logs
    from physai.twin.model.twin import load_twin

    file = None if out is None else writable_file(out, "field.json")
    require_range("seed", seed, 0, MAX_SEED)
    paths = [Path(one) for one in several(logs)]
    for path in paths:
        _require_scheduled(path)
    played = find_policy(Path(policy))
    data = read_policy(played)
    graph = OnnxPolicy(data, source=str(played))
    of = find_origin(played, task=task, robot=None if model is None else str(model)).load()
    read = read_logs(paths, of.robot.spec)
    robot, seen = _robot_of(read), _seen(success or {}, read)
    loaded = load_twin(twin) if isinstance(twin, str | Path) else twin
    result = run_closed_loop(
        loaded, graph, sha256_hex(data), of, read, length_s=length_s, draws=MIN_DRAWS, seed=seed, tell=progress
    )
    real, replays = result.comparison.real_success, result.comparison.twin_success
    episodes = tuple(
        FieldEpisode(
            episode=f"r{log.sha256[:16]}",
            segment="scheduled",
            success=seen.get(log.name, bool(real[number])),
            # Each recording has a draw of its own, as each episode of the gates has.
            replay_success=bool(replays[number % len(replays), number]),
            recording_sha256=log.sha256,
        )
        for number, log in enumerate(read)
    )
    try:
        found = FieldEpisodes(
            policy_sha256=sha256_hex(data), contract_fingerprint=graph.fingerprint, robot=robot, episodes=episodes
        )
    except ValidationError as error:
        raise FieldEpisodesError(error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")) from None
    if file is not None:
        save_field_episodes(found, file)
    return found


def _require_scheduled(path: Path) -> None:
    """Raise FieldEpisodesError unless the flight recorder made a recording at a time drawn beforehand."""
    from mcap.exceptions import McapError
    from mcap.reader import make_reader

    try:
        with path.open("rb") as stream:
            records = [one.metadata for one in make_reader(stream).iter_metadata() if one.name == FLIGHT_METADATA]
    except (McapError, OSError, ValueError) as error:
        raise FieldEpisodesError(f"{path}: no readable MCAP file: {error!s:.200}") from None
    stated = records[0].get(SEGMENT) if records else None
    if stated != "scheduled":
        raise FieldEpisodesError(
            f"{path}: its metadata state the segment {stated!r:.60}, not 'scheduled': recordings that an event started "
            "are no random sample; leave it out"
        )


def _robot_of(logs: Sequence[RobotLog]) -> str:
    origins = {(log.origin.kind, log.origin.robot) for log in logs}
    kind, robot = next(iter(origins))
    if len(origins) > 1 or kind != "robot" or robot is None:
        told = ", ".join(sorted({str(log.origin) for log in logs}))
        raise FieldEpisodesError(f"the recordings are from {told}; give recordings of one robot")
    return robot


def _seen(given: Mapping[str, str], logs: Sequence[RobotLog]) -> dict[str, bool]:
    names = [log.name for log in logs]
    for name, answer in given.items():
        if name not in names or answer not in _ANSWERS:
            raise FieldEpisodesError(
                f"`success` {name}={answer}: give RECORDING=yes or =no for one of {', '.join(names)!s:.200}"
            )
    return {name: _ANSWERS[answer] for name, answer in given.items()}
