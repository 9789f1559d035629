"""A robot says with its own key what drives it, and files that with the evidence of its shadows."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fixtures.sample import sample_policy
from tests.harness.fixtures.site import Site
from tests.support.unit_keys import UNIT, UnitKeys

from physai.deploy_jetson.update.slots.layout import ROBOT_KEY_FILE, SHADOW_FOLDER
from physai.deploy_jetson.update.slots.slot_records import RobotIdentity
from physai.deploy_jetson.upload.robot_documents import LATEST_SHADOWS, file_documents, signed_state
from physai.sdk.base.service import Service, ServiceRequestError
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.cli.main import main
from physai.sdk.evidence.verdict import utc_text
from physai.sdk.signing.ed25519 import load_private_key
from physai.sdk.signing.status.robot_state import RobotStateError, RobotStatePredicate, read_robot_state
from physai.sdk.signing.trust_store import TrustStore

ROBOT = "pendulum/cell-3"


@pytest.fixture
def robot(site: Site) -> Site:
    site.agent.setup(RobotIdentity(robot=ROBOT))
    return site


def trust(robot: Site, label: str = ROBOT) -> TrustStore:
    key = load_private_key(robot.agent.root / ROBOT_KEY_FILE)
    return TrustStore().with_key(key.public_key("robot", label=label))


def stated(robot: Site, **changes: Any) -> RobotStatePredicate:
    return read_robot_state(signed_state(robot.on(**changes)), trust(robot))[0]


def test_a_robot_states_its_active_bundle_and_the_verdict_on_it(robot: Site, now: datetime) -> None:
    assert stated(robot) == RobotStatePredicate(robot=ROBOT, issued=utc_text(now), stand_in=False, active=None)
    robot.run(1, commit=False)
    active, bundle = stated(robot).active, read_bundle(robot.bundles[1])
    assert active is not None
    assert (active.sha256, active.manifest, active.version) == (bundle.sha256, bundle.id, 1)
    assert (active.task, active.on_trial) == ("swingup", True)
    created = robot.workshop.created
    assert active.verdict is not None
    assert (active.verdict.created, active.verdict.expires) == (
        utc_text(created),
        utc_text(created + timedelta(days=30)),
    )
    robot.agent.commit("healthy")
    later = stated(robot).active
    assert later is not None
    assert not later.on_trial


def test_a_bundle_without_a_valid_verdict_has_none(robot: Site) -> None:
    bundle = robot.workshop.published(sample_policy(seed=9), version=9)
    robot.agent.install(bundle, unsafe_no_verdict=True)
    robot.agent.activate()
    active = stated(robot).active
    assert active is not None
    assert (active.version, active.verdict) == (9, None)


def test_a_simulation_in_the_robots_place_says_so(robot: Site) -> None:
    robot.agent.setup(RobotIdentity(robot=ROBOT, stand_in=True))
    assert stated(robot).stand_in


def test_a_clock_that_is_behind_makes_no_old_state(robot: Site, now: datetime) -> None:
    robot.run(1)
    floor = datetime.strptime(robot.agent.store.state().latest_time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert floor <= now
    assert stated(robot, clock=lambda: datetime(1970, 1, 1, tzinfo=UTC)).issued == utc_text(floor)


def test_a_state_counts_for_the_robot_of_the_keys_label_only(robot: Site) -> None:
    with pytest.raises(RobotStateError, match=r"the state is of pendulum/cell-3, and signed by the key of pendulum/x"):
        read_robot_state(signed_state(robot.agent), trust(robot, "pendulum/x"))


class Telephone(Service):
    """A service that notes what it was sent."""

    sent: list[tuple[str, bytes]]

    def post(self, path: str, body: bytes | dict[str, Any], *, timeout_s: float = 30.0) -> Any:
        assert isinstance(body, bytes)
        self.sent.append((path, body))
        return {"accepted": True, "entry": 1}


class Away(Telephone):
    def post(self, path: str, body: bytes | dict[str, Any], *, timeout_s: float = 30.0) -> Any:
        super().post(path, body)
        raise ServiceRequestError("cannot be reached")


@pytest.fixture
def made() -> Callable[[type[Telephone]], Telephone]:
    def make(kind: type[Telephone]) -> Telephone:
        service = kind("http://127.0.0.1:1")
        object.__setattr__(service, "sent", [])
        return service

    return make


def keep_shadows(robot: Site, count: int) -> list[bytes]:
    folder = robot.agent.root / SHADOW_FOLDER
    folder.mkdir()
    keys = UnitKeys()
    documents = [keys.shadow(robot=UNIT, run=f"{number:032x}") for number in range(count)]
    for number, document in enumerate(documents):
        (folder / f"{'c' * 12}-{number:032x}.json").write_bytes(document)
    (folder / "damaged.json").write_bytes(b"{")
    return documents


def test_the_state_and_the_latest_shadows_are_filed(robot: Site, made: Callable[[type[Telephone]], Telephone]) -> None:
    documents = keep_shadows(robot, LATEST_SHADOWS + 5)
    service = made(Telephone)
    filed, problems = file_documents(robot.agent, service, ROBOT)
    assert problems == []
    assert {path for path, _ in service.sent} == {f"/v1/robots/{ROBOT}/reports"}
    # One of the latest files is damaged, and left out.
    assert [body for _, body in service.sent[1:]] == documents[-LATEST_SHADOWS + 1 :]
    assert filed == len(service.sent) == LATEST_SHADOWS


def test_a_service_that_is_away_is_not_asked_about_each(
    robot: Site, made: Callable[[type[Telephone]], Telephone]
) -> None:
    keep_shadows(robot, 5)
    service = made(Away)
    assert file_documents(robot.agent, service, ROBOT) == (0, ["cannot be reached"])
    assert len(service.sent) == 2


def test_a_robot_without_a_key_says_that_its_state_was_not_filed(
    robot: Site, made: Callable[[type[Telephone]], Telephone]
) -> None:
    (robot.agent.root / ROBOT_KEY_FILE).unlink()
    filed, (problem,) = file_documents(robot.agent, made(Telephone), ROBOT)
    assert filed == 0
    assert problem.startswith("the robot's state: ")


def test_the_verb_says_what_it_sent(robot: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "00000001-20261121T120000.000Z-v1-fault.mcap"
    stick = tmp_path / "stick"
    stick.mkdir()
    command = ["robot", "upload", "--to", str(stick), "--root", str(robot.agent.root)]
    assert main(command) == 0
    assert capsys.readouterr().out == "nothing to send\n0 bytes sent, 0 recordings were there\n"
    folder = robot.agent.root / "recordings"
    folder.mkdir()
    (folder / name).write_bytes(b"recording")
    assert main(command) == 0
    assert capsys.readouterr().out == "nothing to send\n0 bytes sent, 0 recordings were there, 1 not finished\n"
    assert main([*command, "--settle-s", "0"]) == 0
    assert capsys.readouterr().out == f"sent {name}\n9 bytes sent, 0 recordings were there\n"
    assert main([*command, "--settle-s", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["there"] == 1
    assert main([*command[:3], str(tmp_path / "absent"), *command[4:]]) == 2
    assert "mount it, or name a folder to write to" in capsys.readouterr().err
