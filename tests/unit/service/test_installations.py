"""What follows from reports of flashes: what each robot runs, since when, and how much of it is kept."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from physai.service.database.engine import open_database
from physai.service.registry import installations as module
from physai.service.registry.installations import KEPT_PER_UNIT, InstallationReport, Installations, Outcome


@pytest.fixture
def installations(tmp_path: Path) -> Installations:
    return Installations(open_database(f"sqlite:///{tmp_path}/service.db"))


def report(unit: str, version: int, outcome: Outcome, reason: str = "") -> InstallationReport:
    """A report about bundle number `version`."""
    digest = f"{version:064x}"
    facts = {"bundle": digest, "policy": digest, "task": "reach", "version": version}
    return InstallationReport.model_validate({**facts, "unit": unit, "outcome": outcome, "reason": reason})


@pytest.mark.parametrize(
    ("story", "runs"),
    [
        ([(1, "on-trial")], 1),
        ([(1, "failed")], None),
        ([(1, "committed"), (2, "failed")], 1),
        ([(1, "committed"), (2, "on-trial")], 2),
        ([(1, "committed"), (2, "on-trial"), (2, "rolled-back")], 1),
        ([(1, "committed"), (2, "rolled-back")], 1),
        ([(1, "on-trial"), (1, "rolled-back")], None),
        ([(1, "committed"), (2, "rolled-back"), (3, "on-trial"), (3, "rolled-back")], 1),
        ([(1, "on-trial"), (1, "rolled-back"), (1, "unchanged")], 1),
    ],
)
def test_what_a_unit_runs(installations: Installations, story: list[tuple[int, Outcome]], runs: int | None) -> None:
    installations.add(report("other", 9, "committed"), by="ci")
    for version, outcome in story:
        installations.add(report("cell-1", version, outcome), by="ci")
    (unit, other) = installations.units()
    assert (unit["unit"], unit["latest"]["version"], unit["latest"]["outcome"]) == ("cell-1", *story[-1])
    assert (unit["runs"] and unit["runs"]["version"]) == runs
    assert other["runs"]["version"] == 9


def test_since_is_when_it_began_to_run(installations: Installations) -> None:
    begun = installations.add(report("cell-1", 1, "on-trial"), by="ci")["time"]
    installations.add(report("cell-1", 2, "failed"), by="ci")
    again = installations.add(report("cell-1", 1, "committed"), by="ci")
    assert again["since"] == begun < again["time"]
    replaced = installations.add(report("cell-1", 2, "committed"), by="ci")
    assert replaced["since"] == replaced["time"]


def test_a_unit_keeps_its_newest_reports_and_what_it_runs(installations: Installations) -> None:
    installations.add(report("cell-1", 1, "committed"), by="ci")
    for version in range(2, KEPT_PER_UNIT + 10):
        installations.add(report("cell-1", version, "failed"), by="ci")
    kept = [entry["version"] for entry in installations.all(unit="cell-1", limit=1000)]
    assert kept == [*range(KEPT_PER_UNIT + 9, 9, -1), 1]
    assert installations.units()[0]["runs"]["version"] == 1


def test_units_without_a_report_for_longest_go_first(
    installations: Installations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_UNITS", 2)
    for unit in ("a", "b", "a", "c"):
        installations.add(report(unit, 1, "committed"), by="ci")
    assert [unit["unit"] for unit in installations.units()] == ["a", "c"]
    assert [entry["unit"] for entry in installations.all(unit=None, limit=2)] == ["c", "a"]


@pytest.mark.parametrize(
    "change",
    [
        {"unit": ""},
        {"unit": "a b"},
        {"unit": "a\n"},
        {"unit": "x" * 301},
        {"bundle": "A" * 64},
        {"policy": "0" * 63},
        {"task": "<b>"},
        {"version": -1},
        {"version": 2**53},
        {"outcome": "skipped"},
        {"reason": "a\x1b[2J"},
        {"reason": "a\nb"},
        {"reason": "\u202egnp.exe"},
        {"reason": "x" * 1001},
        {"time": 0.0},
    ],
)
def test_what_is_no_report(change: dict[str, object]) -> None:
    valid = report("[::1]:2222", 1, "failed", "no route to host").model_dump()
    assert InstallationReport.model_validate(valid).model_dump() == valid
    with pytest.raises(ValidationError):
        InstallationReport.model_validate(valid | change)
