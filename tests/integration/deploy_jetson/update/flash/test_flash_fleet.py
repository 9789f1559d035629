"""Fleet files, and the order in which a fleet is flashed."""

import asyncio
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import pytest

from physai.deploy_jetson.update.flash.deliver import Flashed
from physai.deploy_jetson.update.flash.flash_errors import FlashError, RefusedError, UnreachableError
from physai.deploy_jetson.update.flash.fleet import MAX_FILE_BYTES, Fleet, load_fleet
from physai.deploy_jetson.update.flash.rollout import RobotReport, roll_out
from physai.deploy_jetson.update.flash.target import Target


def fleet_file(folder: Path, text: str) -> Path:
    path = folder / "fleet.yaml"
    path.write_text(text)
    return path


def test_a_fleet_file(tmp_path: Path) -> None:
    text = """
hosts:
  - cell-1
  - jetson@cell-2:2222
  - {host: cell-3, root: /data/physai, physai: /opt/physai}
canaries: [cell-3]
parallel: 2
max_failure_share: 0.25
root: /srv/physai
"""
    fleet = load_fleet(fleet_file(tmp_path, text))
    root = PurePosixPath("/srv/physai")
    assert fleet.canaries == (Target("cell-3", root=PurePosixPath("/data/physai"), physai="/opt/physai"),)
    assert fleet.others == (Target("cell-1", root=root), Target("cell-2", "jetson", 2222, root))
    assert (fleet.parallel, fleet.max_failure_share) == (2, 0.25)
    asked = load_fleet(fleet_file(tmp_path, text), root=PurePosixPath("/tmp/x"), physai="mine")
    assert asked.others[0] == Target("cell-1", root=PurePosixPath("/tmp/x"), physai="mine")
    assert asked.canaries == fleet.canaries


def test_one_canary_unless_said_otherwise(tmp_path: Path) -> None:
    fleet = load_fleet(fleet_file(tmp_path, "hosts: [a, b, c]"))
    assert [str(target) for target in fleet.canaries] == ["a"]
    assert (fleet.parallel, fleet.max_failure_share) == (8, 0.0)
    assert load_fleet(fleet_file(tmp_path, "{hosts: [a, b], canaries: 0}")).canaries == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the file"),
        ("hosts: []", "hosts"),
        ("hosts: 3", "hosts: must be a valid list (got 3); for example: hosts: [cell-1, jetson@cell-2:2222]"),
        ("hosts: [{host: a, rooot: x}]", "hosts.0 has the unknown key 'rooot'; for"),
        ("hosts: [a, a]", "a occurs twice"),
        ("hosts: [a, {host: a}]", "a occurs twice"),
        ("hosts: [a]\nhosts: [b]", "'hosts' occurs twice"),
        ("hosts: [a]\ncanary: 1", "canary"),
        ("hosts: [a]\ncanaries: [b]", "b is not one of the hosts"),
        ("hosts: [a]\ncanaries: -1", "canaries"),
        ("hosts: [a]\nparallel: 0", "parallel"),
        ("hosts: [a]\nparallel: true", "parallel"),
        ("hosts: [a]\nmax_failure_share: 1.5", "max_failure_share"),
        ("hosts: [a]\nmax_failure_share: .nan", "max_failure_share"),
        ("hosts: ['a:99999']", "port"),
        ("hosts: [-oProxyCommand=x]", "not a host name or address"),
        ("a: &x [1]\nb: *x", "aliases are not allowed"),
        ("hosts: [", "not YAML"),
        ("hosts: !!python/object/apply:os.system [ls]", "not YAML"),
    ],
)
def test_what_is_no_fleet(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(FlashError) as caught:
        load_fleet(fleet_file(tmp_path, text))
    assert reason in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_fleet_file_has_a_bound(tmp_path: Path) -> None:
    with pytest.raises(FlashError, match="more than"):
        load_fleet(fleet_file(tmp_path, "#" * (MAX_FILE_BYTES + 1)))
    with pytest.raises(FlashError, match="cannot be read"):
        load_fleet(tmp_path / "missing.yaml")


class Yard:
    """Robots in memory: some go back, some refuse, and each notes when it was flashed and with how many others."""

    def __init__(self, *, bad: Iterable[str] = (), refusing: Iterable[str] = ()) -> None:
        self.bad, self.refusing = set(bad), set(refusing)
        self.order: list[tuple[str, bool]] = []
        self.most_at_once = self._now = 0

    async def flash(self, target: Target, wait: bool) -> Flashed:
        self.order.append((target.host, wait))
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        for _ in range(3):
            await asyncio.sleep(0)
        self._now -= 1
        if target.host in self.refusing:
            raise RefusedError("VerificationError", "the verdict expired")
        if target.host in self.bad:
            return Flashed("rolled-back", "the arm does not follow")
        return Flashed("committed" if wait else "on-trial")


def fleet(canaries: str, others: str, *, parallel: int = 8, share: float = 0.0) -> Fleet:
    first, rest = (tuple(Target(name) for name in names) for names in (canaries, others))
    return Fleet(first, rest, parallel, share)


def roll(yard: Yard, robots: Fleet, *, wait: bool = False) -> dict[str, RobotReport]:
    reports = asyncio.run(roll_out(robots, yard.flash, wait=wait))
    assert [report.target for report in reports] == list(robots.targets)
    return {report.target.host: report for report in reports}


def outcomes(reports: dict[str, RobotReport]) -> str:
    return " ".join(f"{host}:{report.outcome}" for host, report in reports.items())


def test_canaries_are_committed_before_any_other_robot_is_begun() -> None:
    yard = Yard()
    reports = roll(yard, fleet("ab", "cdef", parallel=2))
    assert outcomes(reports) == "a:committed b:committed c:on-trial d:on-trial e:on-trial f:on-trial"
    assert yard.order[:2] == [("a", True), ("b", True)]
    assert {wait for _, wait in yard.order[2:]} == {False}
    assert yard.most_at_once == 2


def test_a_canary_that_goes_back_stops_everything() -> None:
    yard = Yard(bad="a")
    reports = roll(yard, fleet("a", "bc", share=1.0))
    assert outcomes(reports) == "a:rolled-back b:skipped c:skipped"
    assert reports["b"].reason == "a canary failed"
    assert [host for host, _ in yard.order] == ["a"]


def test_no_further_robot_is_begun_once_too_many_have_failed() -> None:
    yard = Yard(refusing="ce")
    reports = roll(yard, fleet("a", "bcdefghij", parallel=1, share=0.1))
    expected = "a:committed b:on-trial c:failed d:on-trial e:failed f:skipped g:skipped h:skipped i:skipped j:skipped"
    assert outcomes(reports) == expected
    assert reports["f"].reason == "2 of 10 robots had failed"
    assert (reports["c"].kind, reports["c"].reason) == ("VerificationError", "the verdict expired")


def test_by_default_the_first_failure_stops() -> None:
    yard = Yard(bad="b")
    assert outcomes(roll(yard, fleet("a", "bcd", parallel=1), wait=True)) == (
        "a:committed b:rolled-back c:skipped d:skipped"
    )


def test_robots_that_were_begun_already_are_finished() -> None:
    yard = Yard(bad="b")
    reports = roll(yard, fleet("a", "bcdef", parallel=3), wait=True)
    assert outcomes(reports) == "a:committed b:rolled-back c:committed d:committed e:skipped f:skipped"


def test_an_error_that_is_no_answer_is_a_failure_too() -> None:
    async def unreachable(target: Target, wait: bool) -> Flashed:
        raise UnreachableError(f"{target} does not answer")

    reports = asyncio.run(roll_out(fleet("", "a"), unreachable, wait=False))
    assert (reports[0].outcome, reports[0].kind, reports[0].reason) == (
        "failed",
        "UnreachableError",
        "a does not answer",
    )
