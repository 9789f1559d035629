"""Robots of a service: signed documents about them are filed by tokens, believed by signatures and shown to readers."""

import json
import socket
import tempfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.patience import until
from tests.support.service import postgres, postgres_folder
from tests.support.unit_keys import MANIFEST, OTHER, UNIT, UnitKeys, ago

from physai.sdk.cli.main import main
from physai.sdk.signing.ed25519 import SigningKey
from physai.service import ServiceClient, ServiceError, list_units
from physai.service.auth.tokens import TokenStore
from physai.service.database.engine import open_database
from physai.service.serving.process import ServiceProcess
from physai.service.settings import default_database

pytestmark = pytest.mark.slow

KEYS = UnitKeys()
Served = tuple[ServiceProcess, dict[str, str], Path]
"""A service, its tokens by their scope, and its trust file."""


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    if request.param == "sqlite":
        yield from serving(tmp_path_factory.mktemp("service"), None)
        return
    programs = postgres_folder()
    if programs is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, postgres(Path(folder), programs) as url:
        yield from serving(tmp_path_factory.mktemp("service"), url)


def serving(folder: Path, database: str | None) -> Generator[Served]:
    data = folder / "data"
    data.mkdir()
    store = TokenStore(open_database(database or default_database(data)))
    tokens = {"read": store.create("reader", "read"), "run": store.create("cell-3", "run")}
    trust = KEYS.save(folder / "trust.json")
    service = ServiceProcess(data, database=database, workers=0, trust=trust)
    service.start()
    yield service, tokens, trust
    service.stop()


def client(served: Served, scope: str = "run") -> ServiceClient:
    return ServiceClient(served[0].url, access_token=served[1][scope])


def post(served: Served, data: bytes, *, path: str = UNIT, scope: str | None = "run") -> httpx.Response:
    headers = {"authorization": f"Bearer {served[1][scope]}"} if scope else {}
    return httpx.post(f"{served[0].url}/v1/robots/{path}/reports", content=data, headers=headers)


def entries(served: Served) -> list[dict[str, Any]]:
    return client(served, "read").drift(UNIT, limit=1000)


def test_a_robot_is_what_its_documents_say(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for document in (KEYS.state(version=7), KEYS.shadow(ticks=123), KEYS.word(age_s=1.0, revoked=MANIFEST)):
        assert post(served, document).json()["accepted"] is True
    report = KEYS.drift(finding="DRIFTED", values={"link2.mass": 0.25}, age_s=5.0)
    answer = post(served, report).json()
    assert answer == {"accepted": True, "entry": client(served).file_report(UNIT, report)}
    reader = client(served, "read")
    (found,) = reader.units()
    assert found == reader.unit(UNIT) | {"verdict": found["verdict"]}
    assert (found["robot"], found["active"]["version"], found["state"]["received_by"]) == (UNIT, 7, "cell-3")
    assert found["verdict"]["age_s"] == pytest.approx(86400.0, abs=600.0)
    assert found["verdict"]["revoked"]["reason"] == "payload doubled"
    assert (found["drift"]["values"], found["drift"]["role"]) == ({"link2.mass": 0.25}, "robot")
    assert [run["ticks"] for run in found["shadows"]] == [123]
    kept = httpx.get(
        f"{served[0].url}/v1/robots/{UNIT}/reports/{answer['entry']}",
        headers={"authorization": f"Bearer {served[1]['read']}"},
    )
    assert kept.content == report
    assert kept.headers["content-security-policy"] == "sandbox"
    monkeypatch.setenv("PHYSAI_TOKEN", served[1]["read"])
    assert list_units(server=served[0].url)[0]["robot"] == UNIT
    assert main(["sim", "units", UNIT, "--server", served[0].url]) == 0
    shown = capsys.readouterr().out
    assert "REVOKED: payload doubled" in shown
    assert "DRIFTED     link2.mass 0.25" in shown
    assert "123 ticks" in shown
    assert main(["sim", "units", "--json", "--server", served[0].url]) == 0
    assert json.loads(capsys.readouterr().out)["units"][0]["active"]["version"] == 7


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (KEYS.drift(key=SigningKey.generate()), "not signed by a key of the trust file"),
        (KEYS.drift(key=KEYS.robots[OTHER]), f"signed by the key of {OTHER}"),
        (KEYS.state(robot=OTHER), f"is of {OTHER}, and was sent as one of {UNIT}"),
        (KEYS.drift()[:-40], "not a DSSE envelope"),
        (KEYS.drift(age_s=-4000.0), "after now, by the clock of the service"),
        (b"\xff" * 1000, "shadow evidence"),
    ],
    ids=["stranger", "other-key", "other-robot", "cut", "future", "noise"],
)
def test_a_refused_document_is_not_kept(served: Served, document: bytes, reason: str) -> None:
    before = entries(served) if client(served).units() else []
    answer = post(served, document)
    assert answer.status_code == 422
    assert reason in answer.json()["detail"]
    assert (entries(served) if client(served).units() else []) == before


def test_who_files_needs_a_token_that_may(served: Served) -> None:
    assert post(served, KEYS.drift(), scope=None).status_code == 401
    assert post(served, KEYS.drift(), scope="read").status_code == 403
    path = f"{served[0].url}/v1/robots/{UNIT}/recordings/{'0' * 64}"
    headers = {"authorization": f"Bearer {served[1]['read']}"}
    query = {"name": "a", "size": 1, "offset": 0}
    assert httpx.post(path, content=b"x", params=query, headers=headers).status_code == 403
    assert httpx.get(f"{served[0].url}/v1/robots/units").status_code == 401


def test_a_body_is_bounded(served: Served) -> None:
    answer = post(served, bytes(2**20 + 1))
    assert answer.status_code == 413
    assert "1048576 bytes" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["ur10e/..", "ur10e/%2e%2e", "../ur10e/x", "ur10e/a%2fb", "ur10e/.x", "9/x", "a/b%00"])
def test_a_path_names_one_robot(served: Served, path: str) -> None:
    known = [unit["robot"] for unit in client(served).units()]
    assert post(served, KEYS.drift(), path=path).status_code in (404, 405, 422)
    assert [unit["robot"] for unit in client(served).units()] == known


def test_a_name_that_is_too_long_for_a_label_is_refused(served: Served) -> None:
    answer = post(served, KEYS.drift(), path=f"ur10e/{'x' * 60}")
    assert answer.status_code == 422
    assert "at most 64 are known here" in answer.json()["detail"]


def test_many_send_the_same_at_once_and_it_is_one_entry(served: Served) -> None:
    document = KEYS.drift(age_s=777.0)
    with ThreadPoolExecutor(8) as pool:
        answers = [answer.json()["entry"] for answer in pool.map(post, [served] * 16, [document] * 16)]
    assert len(set(answers)) == 1
    assert [one["entry"] for one in entries(served)].count(answers[0]) == 1


def test_a_body_that_breaks_off_leaves_nothing(served: Served) -> None:
    document = KEYS.drift(age_s=888.0)
    before = entries(served)
    for cut in (0, 1, len(document) - 1):
        with socket.create_connection(("127.0.0.1", served[0].port)) as connection:
            head = f"POST /v1/robots/{UNIT}/reports HTTP/1.1\r\nhost: 127.0.0.1:{served[0].port}\r\n"
            head += f"authorization: Bearer {served[1]['run']}\r\ncontent-length: {len(document)}\r\n\r\n"
            connection.sendall(head.encode() + document[:cut])
    assert entries(served) == before
    assert post(served, document).status_code == 200


def test_a_key_that_is_revoked_while_the_service_runs_counts_no_more(served: Served) -> None:
    _, _, trust = served
    key = KEYS.robots[UNIT].key_id
    try:
        KEYS.save(trust, KEYS.trust.with_revoked(key, since=ago(0.0), reason="stolen"))
        assert "not signed by" in post(served, KEYS.state()).json()["detail"]
        trust.write_text("{")
        answer = post(served, KEYS.state())
        assert answer.status_code == 503
        assert "cannot use its trust file" in answer.json()["detail"]
    finally:
        KEYS.save(trust)
    assert post(served, KEYS.state()).status_code == 200


def test_a_service_without_a_trust_file_takes_nothing(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path / "data", workers=0)
    service.start()
    try:
        with pytest.raises(ServiceError, match="has no trust file to verify documents by: start it with --trust FILE"):
            ServiceClient(service.url).file_report(UNIT, KEYS.drift())
        assert httpx.get(f"{service.url}/v1/robots/{UNIT}").status_code == 404
    finally:
        service.stop()


def test_a_service_starts_with_no_trust_file_that_its_owner_did_not_sign(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trust = KEYS.save(tmp_path / "trust.json")
    trust.write_text(trust.read_text().replace('"version": 4', '"version": 5'))
    assert main(["sim", "serve", "--data", str(tmp_path / "data"), "--trust", str(trust)]) == 2
    assert "is signed by 0 of 1 of its own owners" in capsys.readouterr().err


def test_documents_outlive_a_kill_of_the_service(served: Served) -> None:
    entry = client(served).file_report(UNIT, KEYS.drift(age_s=999.0))
    served[0].kill()
    served[0].start()
    until(lambda: client(served).units())
    assert entry in [one["entry"] for one in entries(served)]
