"""Bundles in the registry, and reports of what robots run, over HTTP, with SQLite and PostgreSQL."""

import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from tests.harness.fixtures.sample import SampleSigners, sample_policy
from tests.support.service import postgres, postgres_folder

from physai.sdk.bundle.manifest import ManifestFacts, pack, read_bundle
from physai.service import ServiceClient, ServiceError
from physai.service.auth.tokens import TokenStore
from physai.service.database.engine import open_database
from physai.service.database.tables import ServiceTable
from physai.service.serving.process import ServiceProcess
from physai.service.settings import default_database

SIGNERS = SampleSigners()
BUNDLE = SIGNERS.bundle(7)
REPORT = {
    "unit": "cell-1:2222",
    "bundle": read_bundle(BUNDLE).sha256,
    "policy": read_bundle(BUNDLE).members.sha256("policy.onnx"),
    "task": "swingup",
    "version": 7,
    "outcome": "committed",
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Generator[str | None]:
    if request.param == "sqlite":
        yield None
        return
    programs = postgres_folder()
    if programs is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, postgres(Path(folder), programs) as url:
        yield url


Served = tuple[ServiceProcess, dict[str, str]]
"""A service, and its tokens by their scope."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, database: str | None) -> Generator[Served]:
    data = tmp_path_factory.mktemp("service") / "data"
    data.mkdir()
    store = TokenStore(open_database(database or default_database(data)))
    tokens = {"read": store.create("reader", "read"), "run": store.create("operator", "run")}
    service = ServiceProcess(data, database=database, workers=0)
    service.start()
    yield service, tokens
    service.stop()


def client(served: Served, scope: str = "run") -> ServiceClient:
    return ServiceClient(served[0].url, access_token=served[1][scope])


def post(served: Served, body: dict[str, Any], *, scope: str = "run") -> httpx.Response:
    headers = {"authorization": f"Bearer {served[1][scope]}"}
    return httpx.post(f"{served[0].url}/v1/installations", json=body, headers=headers)


def get(served: Served, path: str = "") -> Any:
    headers = {"authorization": f"Bearer {served[1]['read']}"}
    return httpx.get(f"{served[0].url}/v1/installations{path}", headers=headers).json()


@pytest.mark.slow
def test_the_migrations_make_the_tables(served: Served, database: str | None) -> None:
    engine = open_database(database or default_database(served[0].data))
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), ServiceTable.metadata) == []


@pytest.mark.slow
def test_lists_show_what_a_bundle_says(served: Served) -> None:
    digest = client(served).upload(BUNDLE)
    entry = client(served).register("bundle", digest)
    assert (entry["task"], entry["robot"], entry["bundle_version"]) == ("swingup", "pendulum", 7)
    assert entry["policy"] == REPORT["policy"]
    assert entry["packed"] == read_bundle(BUNDLE).manifest.created
    assert entry["signers"] == {"publisher": [SIGNERS.publisher.key_id], "validator": [SIGNERS.validator.key_id]}
    assert (entry["verdict"], entry["version"], entry["created_by"]) == (True, 1, "operator")
    assert client(served, "read").entries("bundle") == [entry]
    assert client(served).register("bundle", digest) == entry
    unsigned = client(served).upload(pack(sample_policy(), ManifestFacts(version=8, created=SIGNERS.created)))
    entry = client(served).register("bundle", unsigned)
    assert (entry["verdict"], entry["signers"]) == (False, {"publisher": [], "validator": []})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "too short"),
        (BUNDLE[:-1], "does not end like a bundle"),
        (BUNDLE.replace(b'"version":7', b'"version":8'), "checksum"),
        (sample_policy()["policy.onnx"], "does not end like a bundle"),
    ],
)
def test_what_is_no_bundle_is_refused(served: Served, data: bytes, reason: str) -> None:
    digest = client(served).upload(data)
    with pytest.raises(ServiceError, match=reason) as caught:
        client(served).register("bundle", digest)
    assert caught.value.status == 422
    assert str(served[0].data) not in str(caught.value)


def test_rights(served: Served) -> None:
    assert post(served, REPORT, scope="read").json()["type"] == "urn:physai:problem:scope"
    assert httpx.get(f"{served[0].url}/v1/installations/latest").status_code == 401
    with pytest.raises(ServiceError, match="needs a token of scope run"):
        client(served, "read").register("bundle", "0" * 64)


def test_reports_are_kept_and_summed_up(served: Served) -> None:
    stored = post(served, REPORT).json()
    assert stored.items() >= (REPORT | {"reason": "", "reported_by": "operator"}).items()
    other = REPORT | {"bundle": "f" * 64, "version": 8}
    post(served, other)
    back = post(served, other | {"outcome": "rolled-back", "reason": "it falls – twice"}).json()
    (unit,) = get(served, "/latest")
    assert unit == {"unit": "cell-1:2222", "runs": stored, "latest": back}
    assert get(served)[0] == back
    assert get(served, "?unit=cell-1:2222&limit=1") == [back]
    assert get(served, "?unit=cell-2") == []


@pytest.mark.parametrize(
    "change", [{"unit": "a b"}, {"outcome": "skipped"}, {"reason": "x" * 1001}, {"reason": "\0"}, {"time": 1.0}]
)
def test_a_malformed_report_says_what_is_wrong(served: Served, change: dict[str, Any]) -> None:
    answer = post(served, REPORT | change)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    (field,) = change
    assert answer.json()["detail"].startswith(f"body.{field}: ")
