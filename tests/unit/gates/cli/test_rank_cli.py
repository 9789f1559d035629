"""`physai sim rank`."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from physai.gates.cli.rank import command
from physai.sdk.base.errors import PhysaiError
from physai.sdk.stats import score_file
from physai.sdk.stats.score_file import ScoreFileError, read_scores

COUNTS = "policy,successes,trials\na,10,10\nb,5,10\nc,0,10\n"


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def ranked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run(*words, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_counts_and_trials_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each trial gives what counts give; spaces, empty lines, other columns and a BOM do no harm."""
    counts = written(tmp_path, "counts.csv", COUNTS)
    rows = ["\ufeffpolicy, day ,success"]
    for name, successes in (("a", 10), ("b", 5), ("c", 0)):
        rows += [f'"{name}",1, {"True" if trial < successes else 0}' for trial in range(10)]
    trials = written(tmp_path, "trials.csv", "\r\n".join([*rows, "", ""]))
    sim = written(tmp_path, "sim.csv", "policy,successes,trials\nc,10,200\nb,90,200\na,196,200\nother,1,2\n")
    one, two = ranked(capsys, counts, sim), ranked(capsys, trials, sim)
    assert one == two
    assert one["spearman"]["value"] == pytest.approx(1.0)
    assert one["left_out"] == ["other"]
    assert [policy["real"]["trials"] for policy in one["policies"]] == [10, 10, 10]


def test_scores_without_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real = written(tmp_path, "real.csv", "policy,score\na,0.9\nb,0.5\nc,0.2\nd,0.1\n")
    sim = written(tmp_path, "sim.csv", "policy,score\na,0.5\nb,0.7\nc,0.2\nd,0.1\n")
    assert run(real, sim) == 0
    text = capsys.readouterr().out
    # a and b are exchanged: 0.4 each, and nothing for c and d.
    assert next(line.split() for line in text.splitlines() if "mmrv" in line)[:2] == ["mmrv", "0.200"]
    assert "95 % over policies" in text
    with pytest.raises(PhysaiError, match="without its trials"):
        run(real, sim, "--resample", "trials")


def test_many_policies_and_trials_fit_into_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"p{policy},{policy + trial % 7}" for policy in range(100) for trial in range(50)]
    scores = written(tmp_path, "scores.csv", "\n".join(["policy,score", *rows]))
    assert ranked(capsys, scores, scores)["spearman"]["value"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rows with a column `policy`"),
        ("policy,score\n", "no rows"),
        ("name,score\na,1\n", "no rows with a column `policy`"),
        ("policy,rate\na,1\n", "columns policy, rate do not say"),
        ("policy,score,success\na,1,1\n", "do not say which score"),
        ("policy,successes\na,1\n", "do not say which score"),
        ("policy,score,score\na,1,1\n", "named twice"),
        ("policy,score\na\n", ":2: 1 values for 2 columns"),
        ("policy,score\na,nan\n", ":2: score must be a number, got 'nan'"),
        ("policy,score\na,1e999\n", "must be a number"),
        ("policy,success\na,yes\n", "0, 1, true or false, got 'yes'"),
        ("policy,successes,trials\na,3,2\n", "3 successes of 2 trials"),
        ("policy,successes,trials\na,-1,2\n", "-1 successes of 2 trials"),
        ("policy,successes,trials\na,0.5,2\n", "0.5 successes"),
        ("policy,successes,trials\na,0,0\n", "0 successes of 0 trials"),
        (COUNTS + "a,1,2\n", ":5: a second row of policy a"),
        ('policy,score\n"a,1\n', ":2: unexpected end of data"),
        ("policy,score\n,1\n", "1 to 200 characters"),
        ("policy,score\n" + "\n".join(f"p{i},1" for i in range(101)), "more than 100 policies"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScoreFileError) as caught:
        read_scores(Path(written(tmp_path, "bad.csv", text)))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (",".join(["a"] * 1001), "1001 columns, at most 1000 are read"),
        ("policy," + ",".join(["a" * 300] * 2), "a column is named twice"),
        (",".join(f"column{number}" for number in range(1000)), "no rows with a column `policy`"),
        ("policy," + ",".join(f"c{number}" for number in range(900)) + "\na" + ",1" * 900, "do not say which score"),
        ('policy,"a\nb"\nx,1\n', r"the columns a\\nb, policy do not say"),
        ('policy,score\n"a\nb  1.0",1\n', r"all printable, got 8: 'a\\nb  1.0'"),
        ("policy,score\n\x1b[2Ja,1\n", r"all printable, got 5: '\\x1b\[2Ja'"),
        ("policy,score\n" + "a,1\n" * 3, "more than 2 rows"),
    ],
)
def test_a_hostile_file_gets_one_short_line(
    tmp_path: Path, text: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if problem == "more than 2 rows":
        monkeypatch.setattr(score_file, "MAX_TRIALS", 2)
        monkeypatch.setattr(score_file, "MAX_POLICIES", 1)
    path = written(tmp_path, "scores.csv", text)
    with pytest.raises(ScoreFileError, match=problem) as caught:
        read_scores(Path(path))
    assert len(str(caught.value)) < 500 + len(path)
    assert "\n" not in str(caught.value)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ScoreFileError, match="not a regular file"):
        read_scores(tmp_path / "pipe.csv")


@given(st.binary(max_size=300) | st.text(max_size=200).map(lambda text: b"policy,score\n" + text.encode()))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes_are_read_or_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "any.csv"
    path.write_bytes(data)
    try:
        scores = read_scores(path)
    except ScoreFileError:
        return
    assert scores


def test_missing_file_and_too_few_policies(tmp_path: Path) -> None:
    with pytest.raises(ScoreFileError, match=r"nowhere\.csv: cannot be read"):
        read_scores(tmp_path / "nowhere.csv")
    real = written(tmp_path, "real.csv", COUNTS)
    sim = written(tmp_path, "sim.csv", COUNTS.replace("c,", "d,"))
    with pytest.raises(PhysaiError, match="2 policies on the robot and 2 in simulation"):
        run(real, sim)


def test_few_policies_are_said_to_be_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """3! = 6 orders of three; of five, chance finds the right one in 1 of 120 cases."""
    three = written(tmp_path, "three.csv", COUNTS)
    assert run(three, three) == 0
    assert (
        "3 policies: in any simulation 1 order of 6 is the robot's, so at least 5 are needed" in capsys.readouterr().out
    )
    assert ranked(capsys, three, three)["remark"].startswith("3 policies")
    five = written(tmp_path, "five.csv", COUNTS + "d,3,10\ne,7,10\n")
    assert ranked(capsys, five, five)["remark"] == ""
