"""`physai zoo`: lists public policies, and fetches one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from physai.foreign.zoo.fetch import fetch_policy
from physai.sdk.base.terminal import printable, say_on_stderr, table
from physai.sdk.cli.verb import AsJson, noun, verb

if TYPE_CHECKING:
    from physai.foreign.zoo.fetch import FetchedPolicy
    from physai.foreign.zoo.table import Zoo, ZooPolicy


@verb(summary="list public policies that can be imported (default)")
def _list(*, as_json: AsJson = False) -> int:
    """Print the table.

    Distances are those in the twin, without randomisation, in 10 s at the command 0.5 m/s forwards.
    """
    from physai.foreign.zoo.table import load_zoo

    zoo = load_zoo()
    if as_json:
        print(json.dumps(zoo.model_dump(mode="json"), indent=2))
        return 0
    header = ("name", "reader", "robot", "licence", "m in 10 s", "remarks")
    print(printable(table(header, [_row(zoo, policy) for policy in zoo.policies], indent="")))
    print("\nphysai has none of their files; fetch one from its publisher: physai zoo fetch NAME", file=sys.stderr)
    return 0


@verb(fetch_policy, summary="fetch a public policy and its robot")
def _fetch(call: Callable[..., FetchedPolicy], *, as_json: AsJson = False) -> int:
    """Print the command that imports it.

    The files come from GitHub or from the package index of this interpreter's pip, and keep their licences, which are
    fetched as well. Look at them before you pass anything on.
    """
    made = call(say=say_on_stderr)
    if as_json:
        record = {"folder": str(made.folder), "command": list(made.command), "licences": made.licences}
        print(json.dumps({**record, "policy": made.policy.model_dump(mode="json")}, indent=2))
        return 0
    for source, licence in made.licences.items():
        say_on_stderr(f"{made.folder / source}: {licence}")
    for name, setting in made.policy.settings.items():
        say_on_stderr(f"{name}: {setting.reason}")
    print(printable(made.command_line))
    return 0


def _row(zoo: Zoo, policy: ZooPolicy) -> tuple[str, ...]:
    robot = zoo.robots.get(policy.robot)
    licences = [zoo.sources[one.source].licence for one in ([policy] if robot is None else [policy, robot])]
    distance = "-" if policy.distance_m is None else f"{policy.distance_m:.2f}"
    remarks = [policy.note, *(f"--set {name}" for name in policy.settings)]
    return (
        *(policy.name, policy.family, policy.robot, ", ".join(dict.fromkeys(licences)), distance),
        "; ".join(filter(None, remarks)) or "-",
    )


command = noun("list public policies, or fetch one", {"list": _list, "fetch": _fetch}, default="list")
"""The verb `zoo`."""
