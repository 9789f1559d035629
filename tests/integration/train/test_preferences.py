"""From a run to preferences to a fine-tuned run that is exported, by the commands."""

import csv
import json
import signal
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from physai.rlhf.answers.segment import PreferenceError
from physai.rlhf.answers.store import PreferenceStore
from physai.rlhf.finetune.finetune import FinetuneSettings, finetune
from physai.rlhf.finetune.record import Curve, origin
from physai.rlhf.reward_model.ensemble import load_ensemble
from physai.rlhf.reward_model.fit import fit_store
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.cli.main import main
from physai.train.runners.checkpoint import load_run

SMALL = ("--num-envs", "16", "--set", "horizon=16", "--set", "minibatches=2", "--set", "hidden=8")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("preferences") / "run"
    assert main(["train", "cartpole-swingup", "--out", str(folder), "--iterations", "1", *SMALL]) == 0
    return folder


@pytest.fixture(scope="module")
def database(run: Path) -> Path:
    path = run.parent / "answers.db"
    collect = ["preferences", "collect", str(run), "--out", str(path), "--pairs", "20", "--repeats", "0.5"]
    answer = ["preferences", "answer", str(path), "--simulated"]
    assert main(collect) == 0
    assert main([*answer, "perfect", "--taste", "command_size=-1"]) == 0
    assert main([*collect, "--seed", "1"]) == 0
    assert main([*answer, "perfect", "--taste", "command_size=-1"]) == 0
    assert main([*answer, "mistaken", "--eps-mistake", "1", "--taste", "command_size=-1", "--limit", "20"]) == 0
    return path


def test_status_counts_and_compares(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preferences", "status", str(database), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["pairs"] == 50
    assert status["repeated"] == 10
    assert 40 < status["segments"] <= 80
    assert status["methods"] == {"disagreement": 20, "random": 30}
    perfect = status["raters"]["simulated-perfect"]
    assert (perfect["answers"], perfect["open"]) == (50, 0)
    assert (perfect["consistency"]["repeated"], perfect["consistency"]["same"]) == (10, 10)
    # The other one always says the opposite.
    assert status["krippendorff_alpha"] < -0.5
    assert len(status["sha256"]) == 64


def test_answers_come_from_the_taste(database: Path) -> None:
    store = PreferenceStore(database)
    segments, pairs = store.segments(), {pair.id: pair for pair in store.pairs()}
    column = store.layout.terms.index("command_size")
    for answer in store.answers():
        pair = pairs[answer.pair]
        forces = [segments[number].terms[:, column].sum() for number in (pair.first, pair.second)]
        less = "first" if forces[0] < forces[1] else "second"
        assert (answer.preference == less) == (answer.rater == "simulated-perfect")
    store.close()


def test_a_file_says_what_a_teacher_likes(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy, path = tmp_path / "copy.db", tmp_path / "mine.py"
    sqlite3.connect(database).execute("VACUUM INTO ?", [str(copy)])
    answer = ["preferences", "answer", str(copy), "--simulated", "perfect", "--reward-file", str(path)]
    sources = (
        "def reward(steps):\n    return -steps['terms.command_size']\n",
        "def rubric(episode):\n    assert episode['qpos'].shape == (25, 2)\n    return episode['qpos'][-1, 0]\n",
        "def reward(steps):\n    return steps['seen.x.cart']\n",
    )
    raters: list[str] = []
    for source in sources:
        path.write_text(source)
        raters.append(f"simulated-perfect-{sha256_hex(source.encode())[:12]}")
        assert main([*answer, "--json"]) == 0
        printed = capsys.readouterr()
        assert json.loads(printed.out) == {"rater": raters[-1], "answered": 50}
        assert f"of {path}: held by rlimits, seccomp" in printed.err
    store = PreferenceStore(copy)
    segments, pairs = store.segments(), {pair.id: pair for pair in store.pairs()}
    told = {(given.rater, given.pair): given.preference for given in store.answers()}
    store.close()
    for number, pair in pairs.items():
        # The file says what the taste command_size=-1 says.
        assert told[raters[0], number] == told["simulated-perfect", number]
        ends = [segments[segment].qpos[-1, 0] for segment in (pair.first, pair.second)]
        assert told[raters[1], number] == ("first" if ends[0] > ends[1] else "second")
        places = [float(segments[segment].qpos[:, 0].sum()) for segment in (pair.first, pair.second)]
        if abs(places[0] - places[1]) > 1e-4:
            assert told[raters[2], number] == ("first" if places[0] > places[1] else "second")


def test_a_file_that_fails_answers_nothing(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def reward(steps):\n    return steps['speed']\n")
    answer = ["preferences", "answer", str(database), "--simulated", "perfect", "--reward-file", str(path)]
    store = PreferenceStore(database)
    before = len(store.answers())
    assert main(answer) == 2
    assert capsys.readouterr().err.endswith(f"{path}, line 2: KeyError: 'speed'\n")
    assert main([*answer, "--taste", "command_size=-1"]) == 2
    assert f"--reward-file {path} and --taste command_size=-1 both say what is liked" in capsys.readouterr().err
    assert len(store.answers()) == before
    store.close()


def test_a_fit_is_written_and_explains_itself(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preferences", "fit", str(database), "--out", str(tmp_path / "model.npz"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    model, facts = load_ensemble(tmp_path / "model.npz")
    assert model.digest() == report["sha256"]
    assert facts["database"] == report["database"]
    assert set(report["correlations"]) >= {"reward", "reward.upright", "command_size"}


def test_only_the_raters_who_are_chosen_teach(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of them always says the opposite of what the other one says."""
    likes: list[float] = []
    for rater, count in (("simulated-perfect", 50), ("simulated-mistaken", 20)):
        assert main(["preferences", "fit", str(database), "--rater", rater, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["answers"] == count
        likes.append(report["correlations"]["command_size"])
    assert likes[0] < -0.3
    assert likes[1] > 0.3


@pytest.mark.parametrize(
    ("chosen", "count"),
    [
        ((), 70),
        (("simulated-perfect", "simulated-mistaken"), 70),
        (("simulated-perfect",), 50),
        (("simulated-mistaken",), 20),
    ],
)
def test_what_a_run_states_is_about_the_raters_who_were_chosen(
    chosen: Sequence[str], count: int, database: Path
) -> None:
    store = PreferenceStore(database)
    _, report = fit_store(store, raters=chosen)
    stated = origin(store, report, reward_model="0" * 64, reference=None, raters=chosen)
    names = sorted(chosen) or ["simulated-mistaken", "simulated-perfect"]
    text = json.dumps([store.digest(), names], separators=(",", ":"))
    assert stated.raters == sha256_hex(text.encode())
    assert (stated.rater_count, stated.simulated, stated.answers) == (len(names), len(names), count)
    assert (stated.agreement is None) == (len(names) == 1)
    store.close()


def test_a_database_without_names_of_numbers_is_refused(run: Path, database: Path, tmp_path: Path) -> None:
    """Those of physai before it had them."""
    store = PreferenceStore(database)
    layout, (first, *_) = store.layout, store.segments().values()
    store.close()
    old = layout.model_copy(update={"critic": layout.critic - len(layout.seen), "seen": ()})
    store = PreferenceStore(tmp_path / "old.db", layout=old)
    store.add_segments("a policy", {}, [replace(first, critic=first.critic[:, : old.critic])])
    store.close()
    settings = FinetuneSettings(iterations=1)
    with pytest.raises(
        PreferenceError, match=f"critic {old.critic} and {layout.critic}, seen 0 and {len(layout.seen)}"
    ):
        finetune(run, tmp_path / "old.db", tmp_path / "out", settings=settings)


@pytest.mark.slow
def test_a_fine_tuned_run_names_its_origin_and_is_exported(
    run: Path, database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tuned"
    words = ["finetune", str(run), "--preferences", str(database), "--out", str(out), "--iterations", "2"]
    assert main([*words, "--rater", "simulated-perfect", "--taste", "command_size=-1", "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["iterations"] <= 2
    record = json.loads((out / "preferences.json").read_text())
    store = PreferenceStore(database)
    provenance = load_run(out).provenance
    assert provenance["preferences.database"] == store.digest() == record["database"]
    assert provenance["preferences.reward_model"] == load_ensemble(out / "reward_model.npz")[0].digest()
    reference = out / "reference" / "policy.onnx"
    assert provenance["preferences.reference"] == sha256_hex(reference.read_bytes()) == record["reference"]
    # The reference is exported as `physai export` exports the run: the same bytes, of its run.
    assert main(["export", str(run), "--out", str(tmp_path / "again")]) == 0
    assert reference.read_bytes() == (tmp_path / "again" / "policy.onnx").read_bytes()
    text = json.dumps([store.digest(), ["simulated-perfect"]], separators=(",", ":"))
    assert provenance["preferences.raters"] == sha256_hex(text.encode())
    assert "simulated-" not in str(record) + str(provenance)
    assert (record["rater_count"], record["simulated"], record["answers"]) == (1, 1, 50)
    store.close()
    points = record["over_optimisation"]
    assert points[0]["iteration"] == 0
    assert points[0]["kl"] == 0.0
    assert outcome["kept"] in {point["iteration"] for point in points}
    # What was written loses no more than stated, or is the reference's.
    assert outcome["after"]["success"] >= outcome["before"]["success"] - 0.03
    if not outcome["kept"]:
        assert outcome["after"] == outcome["before"]
    assert all(point["taste"] < 0.0 and 0.0 <= point["learned"] <= 6.0 for point in points)
    assert main(["export", str(out)]) == 0
    assert (out / "export" / "policy.onnx").is_file()
    assert main(["train", "--resume", str(out)]) == 2
    assert "learned from preferences" in capsys.readouterr().err


@pytest.mark.slow
def test_a_second_interrupt_says_what_is_left(
    run: Path, database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def signalled(curve: Curve, stats: object) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Curve, "write", signalled)
    out = tmp_path / "tuned"
    assert main(["finetune", str(run), "--preferences", str(database), "--out", str(out), "--iterations", "5"]) == 130
    assert f"nothing was kept: {out} holds the weights of the reference" in capsys.readouterr().err
    weights, kept = (load_run(folder).graph.state_dict() for folder in (run, out))
    assert all(bool((kept[name] == weight).all()) for name, weight in weights.items())


@pytest.mark.slow
def test_a_signal_ends_it_and_names_no_way_that_is_refused(
    run: Path, database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def signalled(curve: Curve, stats: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Curve, "write", signalled)
    words = ["finetune", str(run), "--preferences", str(database), "--out", str(tmp_path / "tuned")]
    capsys.readouterr()
    assert main([*words, "--iterations", "5", "--json"]) == 130
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["reason"] == "stopped by a signal; such a run cannot be continued"
    assert (outcome["interrupted"], outcome["iterations"]) == (True, 1)
    assert json.loads((tmp_path / "tuned" / "outcome.json").read_text())["interrupted"] is True


@pytest.mark.slow
def test_a_signal_ends_training_by_preferences_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def signalled(curve: Curve, stats: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Curve, "write", signalled)
    words = ["preferences", "train", "cartpole-swingup", "--simulated", "perfect", "--out", str(tmp_path / "run")]
    assert main([*words, "--labels", "12", "--iterations", "3", "--num-envs", "16", "--json"]) == 130
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["interrupted"], outcome["iterations"], outcome["labels"]) == (True, 1, 12)


@pytest.mark.slow
def test_training_by_preferences_asks_as_often_as_it_may(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    words = ["preferences", "train", "cartpole-swingup", "--simulated", "noisy", "--labels", "24", "--num-envs", "16"]
    assert main([*words, "--iterations", "3", "--out", str(out), "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["labels"] == 24
    assert outcome["iterations"] == 3
    assert outcome["fit"]["answers"] == 24
    provenance = load_run(out).provenance
    assert (provenance["preferences.rater_count"], provenance["preferences.answers"]) == ("1", "24")
    assert "preferences.reference" not in provenance
    # The last question is asked before the second iteration; until then the exploration is that of the beginning.
    with (out / "progress.csv").open(newline="") as file:
        stds = [float(row["action_std"]) for row in csv.DictReader(file)]
    assert stds[0] == load_run(out).config.initial_std
    assert stds[2] != stds[1] != stds[0]
    assert main(["export", str(out)]) == 0


@pytest.mark.slow
def test_a_run_by_preferences_that_was_cut_off_is_not_continued_with_the_tasks_reward(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(curve: Curve, stats: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Curve, "write", cut_off)
    out = tmp_path / "run"
    words = ["preferences", "train", "cartpole-swingup", "--simulated", "perfect", "--labels", "24", "--num-envs", "16"]
    with suppress(KeyboardInterrupt):
        main([*words, "--iterations", "3", "--out", str(out)])
    assert (out / "checkpoint.pt").is_file()
    capsys.readouterr()
    assert main(["train", "--resume", str(out)]) == 2
    assert "learned from preferences" in capsys.readouterr().err


def test_an_answer_that_was_taken_back_is_not_given_again_forever(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy.db"
    sqlite3.connect(database).execute("VACUUM INTO ?", [str(copy)])
    store = PreferenceStore(copy)
    last = store.last_answer("simulated-perfect")
    assert last is not None
    store.withdraw(last.key)
    store.close()
    answer = ["preferences", "answer", str(copy), "--simulated", "perfect", "--taste", "command_size=-1"]
    assert main(answer) == 2
    assert "was taken back; give another --seed" in capsys.readouterr().err
    assert main([*answer, "--seed", "1"]) == 0
    assert "answered 1 pairs" in capsys.readouterr().out
    # A teacher that has nothing left to answer says so, because another taste does not ask it again.
    assert main([*answer[:-1], "command_size=1"]) == 0
    assert "answered 0 pairs, because it has answered all of" in capsys.readouterr().out
    assert main([*answer[:-1], "command_size=1", "--rater", "other"]) == 0
    assert "simulated-other answered 50 pairs\n" in capsys.readouterr().out


def test_what_was_damaged_is_said_in_one_line(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, (change, verb, says) in enumerate(
        (
            ("UPDATE sources SET origin = 'no JSON'", "status", "is no JSON"),
            ("DELETE FROM pairs WHERE id = 1", "fit", "pair 1 or a segment of it is missing"),
            ("UPDATE answers SET choice = 'equal'", "fit", "answers are ties"),
            ("UPDATE answers SET choice = 'cannot_tell'", "fit", "needs 10 answers with a preference or a tie, got 0"),
        )
    ):
        copy = tmp_path / f"{number}.db"
        sqlite3.connect(database).execute("VACUUM INTO ?", [str(copy)])
        with sqlite3.connect(copy) as connection:
            connection.execute(change)
        connection.close()
        assert main(["preferences", verb, str(copy)]) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1


def test_bad_input_is_one_line(run: Path, database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db, out = str(database), str(tmp_path / "out")
    for words in (
        ["preferences", "status", str(tmp_path / "missing")],
        ["preferences", "collect", str(run), "--out", db, "--segment-s", "1"],
        ["preferences", "collect", str(run), "--out", db, "--pairs", "0"],
        ["preferences", "answer", db, "--simulated", "noisy", "--beta", "nan"],
        ["preferences", "answer", db, "--simulated", "noisy", "--taste", "beauty=1"],
        ["finetune", str(run), "--preferences", db, "--out", str(run)],
        ["finetune", str(tmp_path), "--preferences", db, "--out", out],
        ["finetune", str(run), "--preferences", db, "--out", out, "--target-kl", "nan"],
        ["finetune", str(run), "--preferences", db, "--out", out, "--num-envs", "0"],
        ["finetune", str(run), "--preferences", db, "--out", out, "--rater", "simulated-perfekt"],
        ["preferences", "fit", db, "--rater", "simulated-perfekt"],
    ):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert error.startswith("physai")
        assert error.count("\n") == 1
