"""Files of field episodes: a random sample of one policy on one robot, or a refusal that names both values."""

import json
from pathlib import Path
from typing import Any

import pytest

from physai.sdk.evidence.field_episodes import (
    MIN_EPISODES,
    FieldEpisodes,
    FieldEpisodesError,
    load_field_episodes,
    save_field_episodes,
)
from physai.sdk.stats.prediction_powered import MIN_PAIRS

POLICY, CONTRACT = "1" * 64, "2" * 64


def document(count: int = 20, **changes: Any) -> dict[str, Any]:
    """A file in which every tenth episode fails, on the robot and in its replay; `changes` are of the first one."""
    episodes = [
        {
            "episode": f"e{number}",
            "segment": "scheduled",
            "success": number % 10 > 0,
            "replay_success": number % 10 > 0,
            "recording_sha256": f"{number:064x}",
        }
        for number in range(count)
    ]
    episodes[0] |= changes
    return {
        "format_version": 1,
        "policy_sha256": POLICY,
        "contract_fingerprint": CONTRACT,
        "robot": "arm/cell-3",
        "episodes": episodes,
    }


def load(tmp_path: Path, content: dict[str, Any]) -> FieldEpisodes:
    path = tmp_path / "field.json"
    path.write_text(json.dumps(content))
    return load_field_episodes(path)


def test_what_is_saved_is_loaded_with_its_hash(tmp_path: Path) -> None:
    episodes = load(tmp_path, document())
    save_field_episodes(episodes, tmp_path / "again.json")
    again = load_field_episodes(tmp_path / "again.json")
    assert again == episodes
    assert again.sha256 == episodes.sha256
    assert load(tmp_path, document(success=True)).sha256 != episodes.sha256


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (document(segment="incident"), "episode e0 is of a segment 'incident', not 'scheduled'"),
        (document(recording_sha256=f"{7:064x}"), f"recording '{7:064x}' occurs twice"),
        (document(episode="e7"), "episode 'e7' occurs twice"),
        (document(19), "19 episodes; at least 20 are needed"),
        (document(10_001), r"episodes: Tuple should have at most 10000 items"),
        (document(success=1), r"episodes\[0\].success: Input should be a valid boolean \(got 1\)"),
        (document(reward=1.0), r"episodes\[0\].reward: unknown field"),
        (document() | {"robot": "arm; rm"}, "robot: String should match pattern"),
        (document() | {"format_version": 2}, "format 2 is newer than format 1"),
    ],
)
def test_files_that_are_no_sample_are_refused(tmp_path: Path, content: dict[str, Any], words: str) -> None:
    with pytest.raises(FieldEpisodesError, match=words):
        load(tmp_path, content)


def test_a_file_that_is_read_has_enough_pairs() -> None:
    assert MIN_EPISODES == MIN_PAIRS


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FieldEpisodesError, match=r"field.json: cannot be read"):
        load_field_episodes(tmp_path / "field.json")


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (("3" * 64, CONTRACT, "arm"), f"of the policy with SHA-256 {POLICY}, validated is {'3' * 64}"),
        ((POLICY, "4" * 64, "arm"), f"ran under the contract {CONTRACT}, the policy has {'4' * 64}"),
        ((POLICY, CONTRACT, "leg"), "of the robot arm/cell-3, the policy is for leg"),
        ((POLICY, CONTRACT, "ar"), "of the robot arm/cell-3, the policy is for ar"),
    ],
)
def test_episodes_of_another_subject_are_refused(tmp_path: Path, subject: tuple[str, str, str], words: str) -> None:
    episodes = load(tmp_path, document())
    episodes.require_subject(POLICY, CONTRACT, "arm")
    with pytest.raises(FieldEpisodesError, match=words):
        episodes.require_subject(*subject)
