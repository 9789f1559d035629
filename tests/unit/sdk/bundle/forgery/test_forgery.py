"""Forgeries: nothing that its signers did not make is accepted, and nothing at all brings the verifier down.

An outsider may change any byte, recompute every checksum and hash, mix parts of bundles that are accepted, and sign
with keys of his own; he has none of the trusted keys. An insider has them all and signs nonsense: he may be believed,
but must not crash whoever reads it.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.signing.verify import Rule, TrustStore, VerificationError, verify

Workshop = Any
MakeForger = Callable[[int], Any]
MakeArchive = Callable[[list[tuple[str, bytes]]], bytes]

QUICK, ALL = 1_500, 100_000


def outcome_of(data: bytes, trust: TrustStore, now: datetime) -> VerificationError | None:
    """None if it is accepted; anything but a VerificationError is a crash and passes through."""
    try:
        verify(data, trust, robot="pendulum", now=now, floor=0)
    except VerificationError as error:
        return error
    return None


def test_the_forgers_archive_is_the_real_one(complete: bytes, make_archive: MakeArchive) -> None:
    assert make_archive(list(read_bundle(complete).members.items())) == complete


def test_every_single_bit_flip_is_refused(workshop: Workshop, complete: bytes, now: datetime) -> None:
    trust = workshop.trust
    forged = bytearray(complete)
    accepted: list[int] = []
    for bit in range(8 * len(complete)):
        forged[bit // 8] ^= 1 << bit % 8
        if outcome_of(bytes(forged), trust, now) is None:
            accepted.append(bit)
        forged[bit // 8] ^= 1 << bit % 8
    assert accepted == []
    assert outcome_of(bytes(forged), trust, now) is None, "unharmed it is accepted"


def _flips_with_checksums(complete: bytes, step: int, make_archive: MakeArchive) -> Iterator[bytes]:
    parts = list(read_bundle(complete).members.items())
    for index, (name, content) in enumerate(parts):
        for bit in range(index % step, 8 * len(content), step):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            yield make_archive([*parts[:index], (name, bytes(flipped)), *parts[index + 1 :]])


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_bit_flips_with_corrected_checksums_are_refused(
    workshop: Workshop, complete: bytes, now: datetime, make_archive: MakeArchive, step: int
) -> None:
    trust = workshop.trust
    forgeries = _flips_with_checksums(complete, step, make_archive)
    rules = {getattr(outcome_of(data, trust, now), "rule", None) for data in forgeries}
    assert None not in rules
    assert rules >= {Rule.CONTENTS, Rule.ENVELOPE, Rule.SIGNATURE, Rule.STATEMENT}


def test_every_truncation_is_refused(workshop: Workshop, complete: bytes, now: datetime) -> None:
    trust = workshop.trust
    for size in range(len(complete)):
        error = outcome_of(complete[:size], trust, now)
        assert error is not None
        assert error.rule is Rule.ARCHIVE


COUNTS = [(QUICK, 0), pytest.param(ALL, 1, marks=pytest.mark.exhaustive)]


@pytest.mark.parametrize(("count", "seed"), COUNTS)
def test_outsiders_forge_nothing(
    workshop: Workshop, make_forger: MakeForger, now: datetime, count: int, seed: int
) -> None:
    forger, trust = make_forger(seed), workshop.trust
    rules: set[Rule] = set()
    seen: set[int] = set()
    while len(seen) < count:
        data = forger.outsider()
        if hash(data) in seen or data in forger.originals:
            continue
        seen.add(hash(data))
        error = outcome_of(data, trust, now)
        assert error is not None, f"forgery {len(seen)} of seed {seed} is accepted"
        rules.add(error.rule)
    assert rules >= {
        Rule.ARCHIVE,
        Rule.ENVELOPE,
        Rule.STATEMENT,
        Rule.KEY,
        Rule.SIGNATURE,
        Rule.THRESHOLD,
        Rule.CONTENTS,
    }


@pytest.mark.parametrize(("count", "seed"), [(QUICK // 5, 2), pytest.param(ALL // 4, 3, marks=pytest.mark.exhaustive)])
def test_insiders_crash_nothing(
    workshop: Workshop, make_forger: MakeForger, now: datetime, count: int, seed: int
) -> None:
    forger, trust = make_forger(seed), workshop.trust
    outcomes = [outcome_of(forger.insider(), trust, now) for _ in range(count)]
    rules = {error.rule for error in outcomes if error is not None}
    assert rules >= {Rule.CONTENTS, Rule.STATEMENT}
    assert None in outcomes, "what an insider signs properly is accepted"
