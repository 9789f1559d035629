"""`physai play`: shows, films or records a policy in simulation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from physai.compute.cli.progress_bars import share_bar
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.arguments import require_range
from physai.sdk.base.terminal import printable, say_on_stderr, table
from physai.sdk.cli.verb import AsJson, Option, verb
from physai.service.view.playing.play_policy import play

if TYPE_CHECKING:
    from physai.service.view.playing.play_policy import Playback
    from physai.sim.playback.moment import EpisodeOutcome

INTERRUPTED = 130
"""Exit code of a command that was interrupted."""


@verb(play, summary="show, film or record a policy in simulation")
def command(
    call: Callable[..., Playback],
    *,
    what: str,
    seed: int,
    nominal: bool,
    web: Annotated[int | None, Option(metavar="PORT", bare="8080")] = None,
    video: Path | None = None,
    record: Path | None = None,
    as_json: AsJson = False,
) -> int:
    """Present the outcomes.

    Args:
        web: show it in a browser of this machine instead of a window (default port: 8080, or the next that is free).
    """
    files = {"video": video, "record": record}
    screen = None
    if web is not None:
        require_range("web", web, 0, 65_535)
        for option, path in files.items():
            if path is not None:
                raise PhysaiError(f"--web plays in real time, --{option} as fast as it can; give one of them")
        from physai.service.view.playing.browser import play_in_browser

        screen = partial(play_in_browser, port=web)
    with share_bar(f"playing {what}") as progress:
        played = call(screen=screen, progress=progress, say=say_on_stderr)
    if as_json:
        print(json.dumps(_record(played, files, seed=seed, nominal=nominal)))
    else:
        _print(played, files)
    return INTERRUPTED if played.interrupted else 0


def _record(played: Playback, files: dict[str, Path | None], *, seed: int, nominal: bool) -> dict[str, Any]:
    return {
        **_identity(played),
        "played_by": played.played_by,
        "seed": seed,
        "randomised": not nominal,
        "judged": sum(outcome.judged for outcome in played.outcomes),
        "succeeded": sum(outcome.succeeded for outcome in played.outcomes),
        "interrupted": played.interrupted,
        **{option: None if path is None else str(path) for option, path in files.items()},
        "episodes": [outcome.as_json() for outcome in played.outcomes],
    }


def _print(played: Playback, files: dict[str, Path | None]) -> None:
    judged, succeeded = (sum(getattr(o, name) for o in played.outcomes) for name in ("judged", "succeeded"))
    print(printable(table(*_rows(played.outcomes), indent="")))
    verdict = f"{succeeded} of {judged} succeeded" if judged else "stopped before the first success check"
    criteria = "; ".join(dict.fromkeys(task.success.text for task in played.members.values()))
    print(printable(f"\n{played.scene.name}, {played.played_by}: {verdict} ({criteria})"))
    for option, path in files.items():
        if path is not None:
            print(printable(f"{option:<6}  {path}"))


def _identity(played: Playback) -> dict[str, Any]:
    """Identity of the played policy, as JSON."""
    alone = played.members.get("")
    if alone is not None:
        return {"task": alone.name, "fingerprint": alone.contract.fingerprint, "criterion": alone.success.text}
    members = {
        name: {"task": task.name, "fingerprint": task.contract.fingerprint, "criterion": task.success.text}
        for name, task in played.members.items()
    }
    return {"team": played.scene.name, "members": members}


def _rows(outcomes: Sequence[EpisodeOutcome]) -> tuple[list[str], list[list[str]]]:
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
