"""`physai sim field`: field episodes from recordings and their replays."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from physai.compute.cli.progress_bars import share_bar
from physai.gates.field_recordings import field_episodes
from physai.sdk.cli.verb import AsJson, verb

if TYPE_CHECKING:
    from physai.sdk.evidence.field_episodes import FieldEpisodes


@verb(field_episodes, summary="pair scheduled recordings of a policy with replays in its twin")
def command(call: Callable[..., FieldEpisodes], *, as_json: AsJson = False) -> int:
    """Present the counts."""
    with share_bar("replaying") as progress:
        found = call(progress=progress)
    robot = sum(one.success for one in found.episodes)
    replays = sum(one.replay_success for one in found.episodes)
    if as_json:
        counts = {"episodes": len(found.episodes), "successes": robot, "replay_successes": replays}
        print(json.dumps({**counts, "robot": found.robot, "sha256": found.sha256}))
        return 0
    count = len(found.episodes)
    print(f"{found.robot}: {robot} of {count} episodes succeeded on the robot, {replays} of {count} in their replays")
    return 0
