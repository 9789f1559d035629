"""Corrupted policies, files and twins, each blocked first by the gate that should block it, with the right cause."""

from pathlib import Path

import pytest
from tests.mutation.mutants import bench
from tests.mutation.mutants.bench import blocking
from tests.mutation.mutants.suite import MUTANTS
from tests.mutation.mutants.trials import Mutant

from physai.sdk.evidence.verdict import VerdictOutcome

ASKED = {
    "contract",
    "twin",
    "parity",
    "success",
    "non-inferiority",
    "safety",
    "robustness",
    "falsification",
    "latency",
}
"""Every gate but `engine`, which has tests of its own."""


def parameters() -> list[object]:
    return [
        pytest.param(mutant, id=mutant.name, marks=() if mutant.quick else (pytest.mark.mutation,))
        for mutant in MUTANTS
    ]


@pytest.mark.parametrize("mutant", parameters())
def test_a_mutant_is_blocked_by_the_gate_that_should(mutant: Mutant, tmp_path: Path) -> None:
    verdict = bench.validate(mutant.make(tmp_path), tmp_path / "report", last=mutant.gate)
    found = blocking(verdict)
    assert found, f"{mutant.name} passes every gate"
    first = found[0]
    assert (first.gate, first.outcome, first.cause) == (mutant.gate, mutant.outcome, mutant.cause), first.message
    assert verdict.outcome is not VerdictOutcome.PASS
    assert first.message
    assert first.next_step


def test_every_gate_blocks_some_mutant_first() -> None:
    assert len(MUTANTS) >= 25
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert {mutant.gate for mutant in MUTANTS} == ASKED
