"""`physai robot revocations`: the word of validators on the verdicts of this robot."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from physai.deploy_jetson.update.robot_tree import TreeOption
from physai.deploy_jetson.update.robot_words import robot_revocations
from physai.sdk.base.terminal import printable, styled
from physai.sdk.cli.verb import AsJson, verb

if TYPE_CHECKING:
    from physai.deploy_jetson.update.robot_words import RobotRevocations


@verb(robot_revocations, summary="show or accept the word of validators: verdicts that are revoked or narrowed")
def revocations_verb(call: Callable[..., RobotRevocations], *, tree: TreeOption = None, as_json: AsJson = False) -> int:
    """Show revocations.

    exit code: 1 if the verdict on an installed version is revoked
    """
    found = call(tree=tree)
    if as_json:
        record = {
            "words": [word.model_dump(mode="json") for word in found.words],
            "revoked": list(found.revoked),
            "rules": found.rules.model_dump(mode="json"),
        }
        print(json.dumps(record, indent=2))
    else:
        print("\n".join(_lines(found)))
    return 1 if found.revoked else 0


def _lines(found: RobotRevocations) -> list[str]:
    lines = [styled(printable(text), "red", sys.stdout) for text in found.revoked]
    for word in found.words:
        lines.append(f"{word.robot}  serial {word.serial}, issued {word.issued}")
        lines += [printable(f"  revoked   {one.bundle[:16]} since {one.since}: {one.reason}") for one in word.revoked]
        for one in word.narrowed:
            conditions = one.conditions.model_dump_json(exclude_defaults=True)
            lines.append(printable(f"  narrowed  {one.bundle[:16]} since {one.since}: {one.reason}: {conditions}"))
    if not found.words:
        lines.append("no validator has said anything yet")
    rules = found.rules
    age = "of any age" if rules.max_age_s is None else f"at most {rules.max_age_s:g} s old, else {rules.on_stale}"
    asked = ", ".join(rules.sources) or "no source"
    lines.append(printable(f"asks {asked} every {rules.poll_s:g} s; word {age}; a revoked policy: {rules.on_revoked}"))
    return lines
