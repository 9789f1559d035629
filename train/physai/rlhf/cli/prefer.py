"""`physai preferences`: collects them, answers them by simulated teachers, fits reward models, trains by them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.compute.cli.options import add_reward_without_argument
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from physai.rlhf.answers.store import PreferenceStore
    from physai.rlhf.answers.teachers import Teacher

TEACHERS = ("perfect", "noisy", "myopic", "mistaken", "skipping", "equal")
_PARAMETERS = {
    "beta": "how surely it takes the better motion, per unit of reward; inf: always",
    "gamma": "below 1 the end of a motion counts more than its beginning",
    "eps_mistake": "probability that it says the opposite",
    "eps_skip": "it cannot tell if both motions are worth less than this share of the mean",
    "eps_equal": "both are equal to it if they differ by less than this share of the mean",
}
"""Options that change one parameter of a teacher, and what they do; see `physai.rlhf.answers.teachers`."""
MAX_PAIRS = 100_000


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="collect|answer|status|fit|train", required=True)
    collect = actions.add_parser(
        "collect",
        help="draw pairs of segments from the policy of a run",
        description="Draw pairs of segments from the policies of runs of one task into a database.",
    )
    collect.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folder")
    collect.add_argument("--out", type=Path, required=True, metavar="DB", help="database; begun if there is none")
    collect.add_argument("--pairs", type=int, default=60, metavar="N", help="pairs from each run (default: 60)")
    _add_method(collect, default="disagreement")
    collect.add_argument(
        "--repeats",
        type=float,
        default=0.1,
        metavar="SHARE",
        help="share of the pairs that ask earlier ones again, with the sides exchanged (default: 0.1)",
    )
    collect.add_argument("--no-explore", action="store_true", help="play without the run's exploration noise")
    collect.add_argument("--task", help="task of runs whose task is not built in")
    collect.add_argument("--robot", help="robot of runs whose robot is not built in")
    answer = actions.add_parser(
        "answer",
        help="let a simulated teacher answer",
        description="Let a simulated teacher answer the pairs that it has not answered.",
    )
    answer.add_argument("database", type=Path, metavar="DB", help="database of `physai preferences collect`")
    answer.add_argument("--simulated", required=True, choices=TEACHERS, metavar="TEACHER", help=", ".join(TEACHERS))
    _add_teacher(answer)
    answer.add_argument(
        "--reward",
        type=Path,
        metavar="FILE",
        help="Python file whose reward(steps) or rubric(episode) says what the teacher likes; it runs in a sandbox",
    )
    add_reward_without_argument(answer)
    answer.add_argument(
        "--rater",
        help="name of the rater, to which simulated- is added (default: the teacher's, and the hash of --reward)",
    )
    answer.add_argument("--limit", type=int, metavar="N", help="greatest number of answers")
    status = actions.add_parser("status", help="what a database holds", description="Print what a database holds.")
    status.add_argument("database", type=Path, metavar="DB", help="database of `physai preferences collect`")
    fit = actions.add_parser("fit", help="fit a reward model", description="Fit a reward model to the answers.")
    fit.add_argument("database", type=Path, metavar="DB", help="database of `physai preferences collect`")
    add_rater_argument(fit)
    fit.add_argument("--out", type=Path, metavar="FILE", help="where to write the model (.npz)")
    train = actions.add_parser(
        "train",
        help="train a policy by preferences of a simulated teacher",
        description="Train a policy by preferences alone: ask, fit and learn in turn.",
    )
    train.add_argument("task", help="task name or Python file")
    train.add_argument("--teacher", required=True, choices=TEACHERS, metavar="TEACHER", help=", ".join(TEACHERS))
    _add_teacher(train)
    train.add_argument("--labels", type=int, default=200, metavar="N", help="answers to ask for (default: 200)")
    _add_method(train, default="best")
    train.add_argument("--out", type=Path, help="run folder (default: runs/TASK/DATE-TIME)")
    train.add_argument("--iterations", type=int, default=180, metavar="N", help="updates of PPO (default: 180)")
    train.add_argument("--num-envs", type=int, metavar="N", help="worlds simulated in parallel")
    for action in (collect, answer, fit, train):
        action.add_argument("--seed", type=int, default=0, help="seed of all random numbers (default: 0)")
    for action in (collect, answer, status, fit, train):
        action.add_argument("--json", action="store_true", help="print one JSON object")


def _add_method(parser: argparse.ArgumentParser, *, default: str) -> None:
    parser.add_argument(
        "--method",
        choices=("best", "disagreement", "random", "uniform"),
        default=default,
        help="how to choose pairs: mostly among those that the reward models so far like best, by their disagreement, "
        f"at random, or every segment equally often (default: {default}; the first pairs are random)",
    )
    parser.add_argument(
        "--segment-s", type=float, default=0.5, metavar="S", help="length of a segment [s] (default: 0.5)"
    )


def add_rater_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the choice of raters."""
    parser.add_argument(
        "--rater",
        action="append",
        default=[],
        metavar="NAME",
        help="learn from the answers of this rater only; may be repeated (default: all raters)",
    )


def _add_teacher(parser: argparse.ArgumentParser) -> None:
    for name, does in _PARAMETERS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, metavar="X", help=does)
    parser.add_argument(
        "--taste", metavar="NAME=WEIGHT,…", help="what it likes, as joint_speed=-1 (default: the task's own reward)"
    )


def _run(arguments: argparse.Namespace) -> int:
    seed = getattr(arguments, "seed", 0)
    if not 0 <= seed < 2**31:
        raise PhysaiError(f"--seed must lie in 0 … {2**31 - 1}, got {seed}")
    actions = {"collect": _collect, "answer": _answer, "status": _status, "fit": _fit, "train": _train}
    document, lines = actions[arguments.action](arguments)
    print(json.dumps(document, indent=2) if arguments.json else printable("\n".join(lines)))
    return 130 if document.get("interrupted") else 0


def _collect(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    from physai.rlhf.collection.collect import collect

    if not 1 <= arguments.pairs <= MAX_PAIRS:
        raise PhysaiError(f"--pairs must lie in 1 … {MAX_PAIRS}, got {arguments.pairs}")
    if not 0.0 <= arguments.repeats <= 1.0:
        raise PhysaiError(f"--repeats must lie in [0, 1], got {arguments.repeats}")
    added: list[dict[str, Any]] = []
    for run in arguments.runs:
        collected = collect(
            run,
            arguments.out,
            pairs=arguments.pairs,
            method=arguments.method,
            seconds=arguments.segment_s,
            seed=arguments.seed,
            repeats=arguments.repeats,
            explore=not arguments.no_explore,
            task=arguments.task,
            robot=arguments.robot,
        )
        added.append({"run": str(run), **asdict(collected)})
    lines = [
        f"{one['run']}: {one['pairs']} pairs of {one['segments']} segments, chosen by {one['method']}, "
        f"{one['repeated']} of them repeated"
        for one in added
    ]
    return {"database": str(arguments.out), "added": added}, [
        *lines,
        f"next: physai sim serve --preferences {arguments.out}",
    ]


def _teacher(arguments: argparse.Namespace, name: str) -> Teacher:
    from physai.rlhf.answers.teachers import teacher

    given = {p: getattr(arguments, p) for p in _PARAMETERS}
    return teacher(name, {p: value for p, value in given.items() if value is not None})


def _answer(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    from physai.compute.sandbox.reward import UserReward, parse_layers
    from physai.rlhf.answers.preferences import parse_taste
    from physai.rlhf.answers.store import PreferenceStore
    from physai.rlhf.answers.teachers import SIMULATED
    from physai.rlhf.collection.ask import answer_simulated

    if arguments.limit is not None and not 1 <= arguments.limit <= MAX_PAIRS:
        raise PhysaiError(f"--limit must lie in 1 … {MAX_PAIRS}, got {arguments.limit}")
    teacher = _teacher(arguments, arguments.simulated)
    if arguments.reward is not None and arguments.taste is not None:
        raise PhysaiError(f"--reward {arguments.reward} and --taste {arguments.taste} both say what is liked; give one")
    with ExitStack() as stack:
        reward, name = None, arguments.simulated
        if arguments.reward is not None:
            reward = stack.enter_context(UserReward(arguments.reward, without=parse_layers(arguments.reward_without)))
            print(f"{reward.form} of {arguments.reward}: {reward.confinement}", file=sys.stderr)
            # Answers by another file are another rater's.
            name = f"{name}-{reward.sha256[:12]}"
        # Model cards count simulated teachers by their names, so that none passes for a person.
        rater = SIMULATED + (arguments.rater or name).removeprefix(SIMULATED)
        store = PreferenceStore(arguments.database)
        stack.callback(store.close)
        taste = None if arguments.taste is None else parse_taste(arguments.taste, store.layout.terms)
        count = answer_simulated(
            store, teacher, rater=rater, taste=taste, reward=reward, seed=arguments.seed, limit=arguments.limit
        )
    text = f"{rater} answered {count} pairs"
    if not count:
        # Its name does not say what it likes: with another taste it has answered, too.
        text += f", because it has answered all of {arguments.database} already; another --rater answers them again"
    return {"rater": rater, "answered": count}, [text]


def status_of(store: PreferenceStore) -> dict[str, Any]:
    """Contents of a database, and the agreement of its raters."""
    from physai.rlhf.answers.agreement import agreement, consistency, shares

    pairs, answers = store.pairs(), store.answers()
    raters: dict[str, Any] = {}
    for rater in sorted({answer.rater for answer in answers}):
        own = [answer for answer in answers if answer.rater == rater]
        timed = sorted(answer.latency_s for answer in own if answer.latency_s is not None)
        raters[rater] = {
            "answers": len(own),
            "open": len(pairs) - len(own),
            "choices": shares(own),
            "median_latency_s": timed[len(timed) // 2] if timed else None,
            "consistency": asdict(consistency(pairs, own)),
        }
    return {
        "task": store.layout.task,
        "contract": store.layout.fingerprint,
        "segments": store.count_segments(),
        "segment_s": store.layout.steps * store.layout.step_dt,
        "terms": list(store.layout.terms),
        "pairs": len(pairs),
        "repeated": sum(pair.repeat_of is not None for pair in pairs),
        "methods": {m: sum(p.method == m for p in pairs) for m in sorted({p.method for p in pairs})},
        "policies": [policy for policy, _ in store.sources()],
        "answers": len(answers),
        "raters": raters,
        "krippendorff_alpha": agreement(answers),
        "sha256": store.digest(),
    }


def _status(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    from physai.rlhf.answers.store import PreferenceStore

    store = PreferenceStore(arguments.database)
    try:
        status = status_of(store)
    finally:
        store.close()
    rows = [
        (name, str(r["answers"]), str(r["open"]), f"{r['consistency']['same']} of {r['consistency']['repeated']}")
        for name, r in status["raters"].items()
    ]
    alpha = status["krippendorff_alpha"]
    lines = [
        f"{status['task']}: {status['pairs']} pairs of {status['segments']} segments of {status['segment_s']:g} s",
        table(("rater", "answers", "open", "same when repeated"), rows, indent=""),
        "agreement of raters: " + ("unknown, no two answered the same pair" if alpha is None else f"α = {alpha:.2f}"),
        f"terms: {', '.join(status['terms'])}",
    ]
    return status, lines


def _fit(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    from physai.rlhf.answers.store import PreferenceStore
    from physai.rlhf.reward_model.ensemble import save_ensemble
    from physai.rlhf.reward_model.fit import fit_store
    from physai.rlhf.reward_model.fit_report import fit_line

    store = PreferenceStore(arguments.database)
    try:
        model, report = fit_store(store, seed=arguments.seed, beside_task=True, raters=arguments.rater)
        facts = {**report.facts(), "database": store.digest()}
        told = {name: facts[name] for name in ("answers", "accuracy", "correlations", "weights")}
        store.add_fit(told)
    finally:
        store.close()
    digest = save_ensemble(model, arguments.out, facts=facts) if arguments.out else model.digest()
    bins = [(str(one.pairs), f"{one.predicted:.2f}", f"{one.observed:.2f}") for one in report.calibration]
    lines = [
        fit_line(report),
        table(("held-out pairs", "predicted", "observed"), bins, indent=""),
        f"next: physai finetune RUN --preferences {arguments.database}",
    ]
    return {"sha256": digest, **facts}, lines


def _train(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    from physai.rlhf.answers.preferences import parse_taste, term_names
    from physai.rlhf.answers.teachers import SIMULATED
    from physai.rlhf.finetune.scratch import ScratchSettings, train_by_preferences
    from physai.sim.policies.resolve import named_source
    from physai.train.runs.run_config import RunTaskSource
    from physai.train.settings.config import with_options
    from physai.train.settings.presets import settings_of

    if not 12 <= arguments.labels <= MAX_PAIRS:
        raise PhysaiError(f"--labels must lie in 12 … {MAX_PAIRS}, got {arguments.labels}")
    source = RunTaskSource(**asdict(named_source(arguments.task, robot=None, preset=None)), twin=None)
    task = source.load()
    options = {"seed": str(arguments.seed), "iterations": str(arguments.iterations)}
    if arguments.num_envs is not None:
        options["num_envs"] = str(arguments.num_envs)
    config = with_options(settings_of(task, source.task, source.preset), options)
    out = arguments.out or Path("runs") / Path(source.task).stem / time.strftime("%Y%m%d-%H%M%S")
    outcome = train_by_preferences(
        source,
        config,
        out,
        teacher=_teacher(arguments, arguments.teacher),
        rater=SIMULATED + arguments.teacher,
        settings=ScratchSettings(labels=arguments.labels, method=arguments.method, segment_s=arguments.segment_s),
        taste=None if arguments.taste is None else parse_taste(arguments.taste, term_names(task)),
        say=_say,
    )
    return asdict(outcome), [
        f"{outcome.reason}: {outcome.labels} labels, {outcome.seconds:.0f} s, {outcome.fit_seconds:.0f} s of it fits",
        f"next: physai export {out}",
    ]


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr)


command = CliCommand(summary="learn what people like from pairs of motions", add_arguments=_add_arguments, run=_run)
