"""The promise: a bundle carries what changed its policy, in a card that says what its artefacts say and no more."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.bundle.archive import MODEL_CARD_FILE, BundleError, write_archive
from physai.sdk.bundle.manifest import ManifestFacts, open_members, pack, read_archive, read_bundle
from physai.sdk.bundle.model_card import MAX_VALUE, model_card, plain
from physai.sdk.cli.shared.bundle_text import card_text, sections
from physai.sdk.evidence.preferences import Preferences
from physai.sdk.evidence.verdict import Measurement, Verdict
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE, PolicyHeader
from physai.sdk.signing.verify import VerificationError

STATED = Preferences(
    database="a" * 64,
    raters="b" * 64,
    reward_model="c" * 64,
    reference="d" * 64,
    answers=60,
    rater_count=3,
    simulated=1,
    agreement=0.4567,
    held_out=12,
    accuracy=0.75,
    accuracy_lower=0.428,
    accuracy_upper=0.945,
)


@pytest.fixture
def members(workshop: Any, make_onnx: Callable[..., bytes], make_golden: Callable[..., bytes]) -> dict[str, bytes]:
    """What is packed of a policy that was fine-tuned."""
    header = PolicyHeader(workshop.header().contract, {}, {"seed": "7", **STATED.entries})
    return {POLICY_FILE: make_onnx(header), GOLDEN_FILE: make_golden(header)}


def packed(members: dict[str, bytes], now: datetime, **options: Any) -> bytes:
    return pack(members, ManifestFacts(version=5, created=now), **options)


def row(card: str, name: str) -> str:
    """The value of a row of the card's tables."""
    return rows(card, name)[0]


def rows(card: str, name: str) -> list[str]:
    """The values of all rows of a name."""
    lines = [line for line in card.splitlines() if line.startswith(f"| {name} |")]
    return [line.split(" | ", 1)[1].removesuffix(" |") for line in lines]


def test_the_card_says_what_changed_the_policy(
    members: dict[str, bytes], now: datetime, make_verdict: Callable[..., Verdict], tmp_path: Any
) -> None:
    plain_bundle = packed(members, now)
    verdict = make_verdict(plain_bundle, preferences=STATED)
    drop = Measurement(name="drop.reference", value=0.01, lower=-0.02, upper=0.04, confidence=0.975, threshold=0.05)
    gates = tuple(
        gate.model_copy(update={"measured": (drop,)}) if gate.gate == "non-inferiority" else gate
        for gate in verdict.gates
    )
    data = packed(members, now, verdict=verdict.model_copy(update={"gates": gates}))
    bundle = read_bundle(data)
    card = card_text(bundle)
    # The manifest covers it.
    assert bundle.manifest.members[MODEL_CARD_FILE].sha256 == bundle.members.sha256(MODEL_CARD_FILE)
    metadata = yaml.safe_load(card.split("---")[1])
    assert (metadata["task"], metadata["robot"], metadata["library_name"]) == ("swingup", "pendulum", "physai")
    assert "preferences" in metadata["tags"]
    for name, value in (
        ("contract", bundle.contract.fingerprint),
        ("SHA-256 of policy.onnx", bundle.members.sha256(POLICY_FILE)),
        ("database", "a" * 64),
        ("raters", "3, 1 of them simulated teachers by name"),
        ("raters' hash", "b" * 64),
        ("agreement of raters", "Krippendorff's α = 0.46"),
        ("reward model", "c" * 64),
        ("accuracy of the reward model", r"predicts 75% of 12 held-out answers \(95 %: 43% to 94%\)"),
        ("fine-tuned from", "d" * 64),
        ("outcome", "PASS"),
        ("twin", "c" * 64 + ", from the robot pendulum"),
    ):
        assert row(card, name) == value
    assert r"PASS |   | drop.reference 0.01 \(0.975: -0.02 to 0.04\)" in row(card, "non-inferiority")
    assert "--card" in sections(bundle, tmp_path)
    assert "preferences  " + "a" * 64 in sections(bundle, tmp_path)


def test_without_a_verdict_or_preferences_the_card_says_so(workshop: Any) -> None:
    card = card_text(read_bundle(workshop.unsigned()))
    assert "No verdict was known when this was packed" in card
    assert "That does not prove that it learned from none." in card
    assert "## Preferences" not in card
    assert row(card, "run") == "unknown: the policy names none"


def test_a_bundle_of_an_older_version_has_none(workshop: Any, now: datetime) -> None:
    data = workshop.unsigned()
    kept = dict(read_archive(data))
    del kept[MODEL_CARD_FILE]
    with pytest.raises(BundleError, match=r"lacks MODEL_CARD\.md"):
        open_members(read_archive(write_archive(kept)))
    manifest = read_bundle(data).manifest
    facts = {name: fact for name, fact in manifest.members.items() if name != MODEL_CARD_FILE}
    older = manifest.model_copy(update={"members": facts})
    bundle = read_bundle(write_archive({**kept, "manifest.json": canonical_json(older)}))
    with pytest.raises(BundleError, match="pack it again"):
        card_text(bundle)


def test_a_card_is_bytes_under_the_manifest(workshop: Any) -> None:
    members = dict(read_archive(workshop.unsigned()))
    edited = write_archive({**members, MODEL_CARD_FILE: members[MODEL_CARD_FILE].replace(b"swingup", b"pickpkt")})
    with pytest.raises(BundleError, match=r"MODEL_CARD\.md has SHA-256"):
        open_members(read_archive(edited))


@given(st.text(max_size=2000))
def test_no_text_of_an_artefact_is_markup(text: str) -> None:
    shown = plain(text)
    assert shown.isprintable()
    # At most the longest entity for each character.
    assert 0 < len(shown) <= 5 * MAX_VALUE
    # What remains without escapes has no character that CommonMark reads as markup within a line.
    bare = re.sub(r"\\.|&(amp|lt|gt|#64);", "", shown)
    assert not set("\\`*_{}[]()#|~!$<>@&") & set(bare)
    assert "://" not in shown
    assert "www." not in shown.lower()


def test_names_cannot_inject(workshop: Any) -> None:
    evil = "x|y\n# Fine\n<script>1</script>[a](http://b.c)\x1b[31m`\u202e`"
    header = PolicyHeader(workshop.header().contract, {}, {"seed": evil, "version.\n---\nlicense: mit": "1"})
    card = model_card(header, {POLICY_FILE: "0" * 64}, None)
    assert row(card, "seed") == r"x\|y \# Fine &lt;script&gt;1&lt;/script&gt;\[a\]\(http:\//b.c\) \[31m\` \`"
    assert card.count("\n# ") == 1
    assert card.count("\n---\n") == 1
    assert "license" not in yaml.safe_load(card.split("---")[1])


def test_a_large_provenance_makes_no_large_card(workshop: Any) -> None:
    entries = {f"version.{number}": "@" * 10_000 for number in range(120)}
    header = PolicyHeader(workshop.header().contract, {}, entries)
    card = model_card(header, {POLICY_FILE: "0" * 64}, None)
    assert len(card) < 64 * 5 * 2 * MAX_VALUE
    assert "| and 56 more | |" in card


def test_a_verdict_on_another_policy_is_no_card(
    workshop: Any, members: dict[str, bytes], now: datetime, make_verdict: Callable[..., Verdict]
) -> None:
    with pytest.raises(BundleError, match=r"the bundle would hold policy\.onnx"):
        packed(members, now, verdict=make_verdict(workshop.unsigned()))


def test_a_robot_refuses_a_verdict_that_leaves_preferences_out(
    workshop: Any, members: dict[str, bytes], now: datetime, make_verdict: Callable[..., Verdict]
) -> None:
    """As software writes it that does not know of preferences, and so compares with no reference."""
    data = workshop.published(packed(members, now))
    accepted = workshop.verify(workshop.validated(data, verdict=make_verdict(data, preferences=STATED)))
    assert accepted.bundle.preferences == STATED
    other = STATED.model_copy(update={"reference": "e" * 64})
    for preferences in (None, other):
        wrong = workshop.validated(data, verdict=make_verdict(data, preferences=preferences))
        with pytest.raises(VerificationError, match="statement: the verdict states") as raised:
            workshop.verify(wrong)
        assert "validate again with this version" in str(raised.value)
    untouched = workshop.published(workshop.unsigned())
    wrong = workshop.validated(untouched, verdict=make_verdict(untouched, preferences=STATED))
    with pytest.raises(VerificationError, match="statement: the verdict states"):
        workshop.verify(wrong)


def test_manifest_and_quantised_policy_state_the_same(
    workshop: Any, members: dict[str, bytes], now: datetime, make_onnx: Callable[..., bytes]
) -> None:
    facts = ManifestFacts(version=5, created=now, provenance={"preferences.reference": "e" * 64})
    with pytest.raises(BundleError, match=r"the manifest states preferences\.reference eeee"):
        pack(members, facts)
    stripped = make_onnx(PolicyHeader(workshop.header().contract, {}, {"seed": "7"}))
    with pytest.raises(BundleError, match=r"policy\.int8\.onnx states \{\} of preferences"):
        packed({**members, "policy.int8.onnx": stripped}, now)
    broken = PolicyHeader(workshop.header().contract, {}, {**STATED.entries, "preferences.answers": "many"})
    with pytest.raises(BundleError, match=r"preferences\.answers"):
        packed({**members, POLICY_FILE: make_onnx(broken)}, now)
