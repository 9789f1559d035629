"""`physai imitate`: a policy from recordings of a robot, or from another policy."""

from __future__ import annotations

import functools
import json
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from physai.rlhf.imitation.run_imitation import ON_PROCESSORS, imitate
from physai.sdk.cli.verb import AsJson, verb
from physai.train.api.training import resolve_config

if TYPE_CHECKING:
    from physai.rlhf.imitation.run_imitation import ImitationRun


@verb(imitate, summary="teach a policy from recordings, or from another policy")
def command(
    call: functools.partial[ImitationRun], *, settings: Mapping[str, str] | None = None, as_json: AsJson = False
) -> int:
    """Imitate and judge.

    A recording is a file as `physai logs check` reads it: CSV, JSON, Parquet of LeRobot, MCAP, or the folder of a ROS 2
    bag. Its commands must be of the kind that the task's policy gives. The result is a run folder as of `physai train`:
    evaluate and export it, or go on by reinforcement learning with `physai train TASK --init-from RUN`.
    """
    if "help" in (settings or {}):
        from physai.train.settings.config import describe_settings

        others = ("task", "seed", "model", "twin", "preset")
        given = {name: call.keywords[name] for name in others if name in call.keywords}
        kept = {name: value for name, value in (settings or {}).items() if name != "help"}
        print(describe_settings(resolve_config(**given, settings=kept, **ON_PROCESSORS)))
        return 0
    made = call(say=_say)
    if as_json:
        outcome = {**made.learned, "seconds": made.seconds, "success": made.success}
        print(json.dumps({"run": str(made.run), "contract": made.contract, **outcome}))
    share = "" if made.success is None else f"succeeds in {made.success:.0%} of the commands or episodes, "
    _say(f"{share}into {made.run}")
    own = ["--task", str(made.run)] if made.task.endswith(".py") else []
    _say(f"next: {shlex.join(['physai', 'export', str(made.run), *own])}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)
