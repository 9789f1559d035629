"""`physai tasks warmup`: compile what a task's simulation on a device needs, ahead of the first run."""

from __future__ import annotations

import functools
import json
import sys

from physai.sdk.base.terminal import styled
from physai.sdk.cli.verb import AsJson, verb
from physai.train.api.warming import WarmUp, warm_up


@verb(warm_up, summary="compile a task's simulation kernels ahead")
def command(call: functools.partial[list[WarmUp]], *, as_json: AsJson = False) -> int:
    """Compile."""
    results = call(say=_say, done=None if as_json else _report)
    if as_json:
        print(json.dumps([_record(one) for one in results], indent=2))
    return 0


def _report(one: WarmUp) -> None:
    kept = one.capacities
    print(
        f"{one.task}: {one.compiled} of {one.modules} modules compiled for {one.device} in {one.seconds:.1f} s; memory "
        f"for {kept.max_contacts} contacts and {kept.max_constraints} constraints per world "
        f"({'set by hand' if kept.by_hand else 'measured'})"
    )


def _record(one: WarmUp) -> dict[str, object]:
    given = {name: value for name, value in vars(one).items() if name != "capacities"}
    return {**given, "seconds": round(one.seconds, 3), **one.capacities.model_dump()}


def _say(text: str) -> None:
    print(styled(text, "dim", sys.stderr), file=sys.stderr, flush=True)
