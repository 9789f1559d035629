"""`physai finetune`: improve a run's policy by preferences, with a penalty on the divergence from it."""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from physai.cluster.cli.generators import GeneratorOptions
from physai.rlhf.finetune.fine_tune import fine_tune
from physai.sdk.base.terminal import printable
from physai.sdk.cli.verb import AsJson, Option, verb

if TYPE_CHECKING:
    from physai.rlhf.finetune.finetune import Finetuned


@verb(fine_tune, summary="fine-tune a policy by preferences")
def command(
    call: functools.partial[Finetuned],
    *,
    generators: Annotated[GeneratorOptions, Option(flatten=True)],
    as_json: AsJson = False,
) -> int:
    """Fine-tune.

    exit code: 0 when the run ended, 130 when a signal ended it
    """
    from physai.rlhf.finetune.finetune import change_line, kept_line

    tuned = call(generators=generators.pool(), say=_say)
    if as_json:
        print(json.dumps(asdict(tuned), indent=2))
    else:
        text = f"{tuned.reason}: {tuned.seconds:.0f} s, KL {tuned.kl:.3g} nat per step"
        print(printable(f"{text}\n{kept_line(tuned)}\n{change_line(tuned)}\nnext: physai export {tuned.run}"))
    return 130 if tuned.interrupted else 0


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr)
