"""A robot sends its recordings over every break: none is lost, none arrives twice, and none arrives damaged."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.harness.fixtures.sample import SampleSigners
from tests.harness.fixtures.site import Site
from tests.support.outages import may_mount, small_disk
from tests.support.patience import until

from physai.deploy_jetson import upload_recordings
from physai.deploy_jetson.update.slots.layout import ROBOT_KEY_FILE
from physai.deploy_jetson.update.slots.slot_records import RobotIdentity
from physai.deploy_jetson.upload import recording_upload
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.signing.ed25519 import load_private_key
from physai.service import ServiceClient
from physai.service.auth.tokens import TokenStore
from physai.service.database.engine import open_database
from physai.service.observe.audit import AuditLog
from physai.service.serving.process import ServiceProcess
from physai.service.settings import default_database

pytestmark = pytest.mark.slow

UNIT = "pendulum/cell-3"
NAMES = ("00000001-20261121T120000.000Z-v1-fault.mcap", "00000002-20261121T110000.000Z-v1-stop.mcap")
SIZE = 1_500_000


@pytest.fixture
def robot(tmp_path: Path) -> Site:
    """A robot that runs version 1 and has two recordings."""
    workshop = SampleSigners()
    site = Site.make(tmp_path / "robot", workshop, {1: workshop.bundle(1)}, now=workshop.created)
    site.agent.setup(RobotIdentity(robot=UNIT))
    site.run(1)
    folder = site.agent.root / "recordings"
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_bytes(os.urandom(SIZE))
    return site


def begun(robot: Site, data: Path, database: str | None) -> tuple[ServiceProcess, str]:
    """A service that trusts the robot's key, and a token."""
    key = load_private_key(robot.agent.root / ROBOT_KEY_FILE).public_key("robot", label=UNIT)
    trust = data.with_name("trust.json")
    robot.workshop.signed(robot.workshop.trust.with_key(key)).save(trust)
    data.mkdir()
    token = TokenStore(open_database(database or default_database(data))).create("cell-3", "run")
    service = ServiceProcess(data, database=database, workers=0, trust=trust)
    service.start()
    return service, token


@pytest.fixture
def served(robot: Site, tmp_path: Path, database: str | None) -> Generator[ServiceProcess]:
    service, token = begun(robot, tmp_path / "data", database)
    service.client = ServiceClient(service.url, access_token=token)
    (tmp_path / "token").write_text(f"{token}\n")
    yield service
    service.stop()


def arrived(service: ServiceProcess, token: str) -> dict[str, bytes]:
    """Content of the recordings that the service lists, by their names; each is listed once."""
    headers = {"authorization": f"Bearer {token}"}
    listed = httpx.get(f"{service.url}/v1/robots/{UNIT}/recordings", headers=headers).json()
    assert len({one["name"] for one in listed}) == len(listed)
    return {
        one["name"]: httpx.get(f"{service.url}/v1/blobs/{one['sha256']}", headers=headers).content for one in listed
    }


def on_the_robot(robot: Site) -> dict[str, bytes]:
    return {name: (robot.agent.root / "recordings" / name).read_bytes() for name in NAMES}


def test_a_service_gets_the_recordings_and_the_state(
    robot: Site, served: ServiceProcess, tmp_path: Path, database: str | None
) -> None:
    token = tmp_path / "token"
    result = upload_recordings(to=served.url, settle_s=0.0, token_file=token, tree=robot.agent.root)
    assert (result.sent, result.bytes_sent, result.filed, result.problems) == (NAMES, 2 * SIZE, 1, ())
    assert arrived(served, token.read_text().strip()) == on_the_robot(robot)
    (found,) = served.client.units()
    assert (found["robot"], found["active"]["version"], found["active"]["on_trial"]) == (UNIT, 1, False)
    assert found["verdict"]["revoked"] is None
    assert not found["verdict"]["expired"]
    assert found["last_recording"]["name"] == NAMES[1]
    # The list says who sent it: the parts of one recording must not push other entries out of the log of changes.
    audit = AuditLog(open_database(database or default_database(tmp_path / "data"))).entries(before=None, limit=1000)
    assert {entry["path"] for entry in audit} == {f"/v1/robots/{UNIT}/reports"}
    again = upload_recordings(to=served.url, settle_s=0.0, token_file=token, tree=robot.agent.root)
    assert (again.sent, again.there, again.bytes_sent) == ((), 2, 0)


def test_two_robots_of_one_name_at_once_and_a_restart_in_the_middle(
    robot: Site, served: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_upload, "ATTEMPTS", 120)
    token = (tmp_path / "token").read_text().strip()
    monkeypatch.setenv("PHYSAI_TOKEN", token)
    digest = sha256_hex(on_the_robot(robot)[NAMES[0]])
    headers = {"authorization": f"Bearer {token}"}

    def progress() -> int:
        path = f"{served.url}/v1/robots/{UNIT}/recordings/{digest}"
        return httpx.get(path, headers=headers).json()["received"]

    with ThreadPoolExecutor(2) as pool:
        options = {"to": served.url, "settle_s": 0.0, "max_rate": 400_000.0, "tree": robot.agent.root}
        runs = [pool.submit(upload_recordings, **options) for _ in range(2)]  # type: ignore[arg-type]
        until(lambda: progress() > 0)
        served.kill()
        served.start()
        results = [run.result() for run in runs]
    assert arrived(served, token) == on_the_robot(robot)
    assert all(len(result.sent) + result.there == 2 for result in results)


def test_more_than_a_recording_has_is_thrown_away(robot: Site, served: ServiceProcess, tmp_path: Path) -> None:
    """Another holder of a token promised a larger file under the same hash."""
    token = (tmp_path / "token").read_text().strip()
    path = f"{served.url}/v1/robots/{UNIT}/recordings/{sha256_hex(on_the_robot(robot)[NAMES[0]])}"
    query = {"name": NAMES[0], "size": 1 << 30}
    for offset in (0, 800_000):
        answer = httpx.post(
            path,
            params=query | {"offset": offset},
            content=bytes(800_000),
            headers={"authorization": f"Bearer {token}"},
        )
        assert answer.json() == {"received": offset + 800_000, "complete": False}
    result = upload_recordings(to=served.url, settle_s=0.0, token_file=tmp_path / "token", tree=robot.agent.root)
    assert (result.sent, result.problems) == (NAMES, ())
    assert arrived(served, token) == on_the_robot(robot)


COMMAND = [
    sys.executable,
    "-c",
    "import sys; from physai.sdk.cli.main import main; sys.exit(main())",
    "robot",
    "upload",
]


@pytest.mark.parametrize("to", ["service", "folder"])
def test_a_killed_upload_goes_on_where_it_was(
    robot: Site, served: ServiceProcess, tmp_path: Path, database: str | None, to: str
) -> None:
    if to == "folder" and database is not None:
        pytest.skip("a folder has no database")
    token = (tmp_path / "token").read_text().strip()
    stick = tmp_path / "stick"
    stick.mkdir()
    goal = served.url if to == "service" else str(stick)
    command = [*COMMAND, "--to", goal, "--root", str(robot.agent.root), "--settle-s", "0", "--json"]
    environment = os.environ | {"PHYSAI_TOKEN": token}
    partial = (tmp_path / "data" / "blobs" / "partial") if to == "service" else stick

    def size() -> int:
        files = [file for file in partial.rglob("*") if file.is_file()]
        done = 0 if to == "folder" else sum(map(len, arrived(served, token).values()))
        return done + sum(file.stat().st_size for file in files)

    for _ in range(3):
        before = size()
        process = subprocess.Popen([*command, "--max-rate", "65536"], env=environment, stdout=subprocess.DEVNULL)
        until(lambda seen=before: size() > seen)  # type: ignore[misc]
        process.send_signal(signal.SIGKILL)
        process.wait()
    reached = size()
    assert 0 < reached < 2 * SIZE
    upload_recordings(to=goal, settle_s=0.0, token_file=tmp_path / "token", tree=robot.agent.root)
    if to == "service":
        assert arrived(served, token) == on_the_robot(robot)
        assert list(partial.iterdir()) == []
    else:
        files = sorted((stick / UNIT).iterdir())
        assert [file.read_bytes() for file in files] == list(on_the_robot(robot).values())


def test_a_full_disk_is_said_and_what_arrived_is_kept(
    robot: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not may_mount(tmp_path):
        pytest.skip("this process may not mount a file system of its own")
    monkeypatch.setattr(recording_upload, "RETRY_S", 0.0)
    with small_disk(tmp_path) as store:
        service, token = begun(robot, store.data, None)
        monkeypatch.setenv("PHYSAI_TOKEN", token)
        options = {"to": service.url, "settle_s": 0.0, "tree": robot.agent.root}
        try:
            # The first part arrives, and there is no room for the next ones.
            data = on_the_robot(robot)[NAMES[0]]
            query = {"name": NAMES[0], "size": SIZE, "offset": 0}
            path = f"{service.url}/v1/robots/{UNIT}/recordings/{sha256_hex(data)}"
            headers = {"authorization": f"Bearer {token}"}
            httpx.post(path, params=query, content=data[:1000], headers=headers).raise_for_status()
            store.take()
            until(lambda: shutil.disk_usage(store.data).free < 4096)
            with pytest.raises(PhysaiError, match=r"the disk of the service is full|cannot store or read its data now"):
                upload_recordings(**options)  # type: ignore[arg-type]
            assert httpx.get(path, headers=headers).json()["received"] >= 1000
            store.give()
            upload_recordings(**options)  # type: ignore[arg-type]
            assert arrived(service, token) == on_the_robot(robot)
        finally:
            service.stop()


def test_a_service_that_is_away_or_wants_another_token_is_said(
    robot: Site, served: ServiceProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_upload, "RETRY_S", 0.0)
    monkeypatch.setenv("PHYSAI_TOKEN", "physai_" + "x" * 43)
    with pytest.raises(PhysaiError, match=r"the token is unknown, revoked or expired.* \(HTTP 401\)"):
        upload_recordings(to=served.url, settle_s=0.0, tree=robot.agent.root)
    served.kill()
    with pytest.raises(PhysaiError, match="cannot be reached: Connection refused"):
        upload_recordings(to=served.url, settle_s=0.0, tree=robot.agent.root)
