"""Every parser of bytes from outside, on damaged documents: it takes them, or refuses them in words, at once.

A finding's input goes into `corpus/TARGET/`; all of them are tried in every run.
"""

from pathlib import Path

import pytest
from tests.fuzz import targets_robot, targets_sdk, targets_sim
from tests.fuzz.mutator import Mutator
from tests.fuzz.target import Target, finding

TARGETS = {target.name: target for target in (*targets_sdk.TARGETS, *targets_sim.TARGETS, *targets_robot.TARGETS)}
CORPUS = Path(__file__).parent / "corpus"
KEPT = sorted(path for path in CORPUS.glob("*/*") if path.is_file())

QUICK, ALL = 1_000, 40_000
"""Inputs of a target of weight 1: a minute and ten of them for all together."""


def document(target: Target, mutator: Mutator, seed: int) -> bytes:
    """The damaged document of a seed; of every other one the checksums are right."""
    data = mutator.draw(seed)
    return target.finish(data) if target.finish is not None and seed % 2 else data


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_found_once_is_found_no_more(path: Path) -> None:
    assert finding(TARGETS[path.parent.name], path.read_bytes()) == ""


@pytest.mark.parametrize("name", TARGETS)
def test_sound_documents_are_taken(name: str) -> None:
    target = TARGETS[name]
    if name not in ("task-file", "task-name"):  # a task takes more than a few lines
        for data in target.originals:
            target.parse(data)


@pytest.mark.parametrize("count", [QUICK, pytest.param(ALL, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", TARGETS)
def test_damaged_documents_are_taken_or_refused_in_words(name: str, count: int, tmp_path: Path) -> None:
    target = TARGETS[name]
    mutator = Mutator(target.originals)
    for seed in range(round(count * target.weight)):
        data = document(target, mutator, seed)
        found = finding(target, data)
        if found:
            (tmp_path / f"{seed}").write_bytes(data)
        assert found == "", f"seed {seed}: {found}; mend it, and keep {tmp_path / str(seed)} in {CORPUS / name}"
