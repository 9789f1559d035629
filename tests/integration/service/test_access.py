"""Who may use a service: tokens and their scopes, and what is needed off loopback."""

from collections.abc import Generator
from pathlib import Path

import httpx
import pytest
from tests.support.patience import until
from tests.support.service import self_signed

from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.main import main
from physai.service import RemoteSession, ServiceClient, ServiceError
from physai.service.auth.token_admin import list_tokens
from physai.service.auth.tokens import TokenStore
from physai.service.database.engine import open_database
from physai.service.serving.process import ServiceProcess, free_port, running_service
from physai.service.settings import default_database


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[ServiceProcess, dict[str, str]]]:
    data = tmp_path_factory.mktemp("service") / "data"
    data.mkdir()
    store = TokenStore(open_database(default_database(data)))
    tokens = {scope: store.create(f"the-{scope}", scope) for scope in ("read", "run", "admin")}
    tokens["expired"] = store.create("old", "admin", days=1e-9)
    service = ServiceProcess(data, workers=0)
    service.start()
    yield service, tokens
    service.stop()


def get(service: ServiceProcess, path: str, token: str | None) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.get(service.url + path, headers=headers)


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/sessions", "/v1/registry/policy", f"/v1/blobs/{'0' * 64}"])
def test_without_a_valid_token_nothing_is_told(protected: tuple[ServiceProcess, dict[str, str]], path: str) -> None:
    service, tokens = protected
    for token in (None, "physai_wrong", tokens["expired"], "the-admin"):
        answer = get(service, path, token)
        assert answer.status_code == 401, (token, answer.text)
    assert get(service, path, tokens["read"]).status_code in (200, 404)
    assert get(service, "/healthz", None).status_code == 200


def test_a_scope_includes_the_lesser_ones(protected: tuple[ServiceProcess, dict[str, str]]) -> None:
    service, tokens = protected
    reader, runner = (ServiceClient(service.url, access_token=tokens[scope]) for scope in ("read", "run"))
    with pytest.raises(ServiceError, match="needs a token of scope run; the token 'the-read' has read"):
        reader.submit("train", {"task": "cartpole-swingup"})
    with pytest.raises(ServiceError, match="needs a token of scope run"):
        reader.upload(b"data")
    with pytest.raises(ServiceError, match="needs a token of scope run"):
        RemoteSession.create(service.url, "cartpole-swingup", access_token=tokens["read"])
    job = runner.submit("train", {"task": "cartpole-swingup"})
    assert reader.job(job)["submitted_by"] == "the-run"
    assert runner.cancel(job)["state"] == "cancelled"
    with RemoteSession.create(service.url, "cartpole-swingup", access_token=tokens["admin"]) as session:
        assert session.reset()


def test_a_session_needs_both_tokens(protected: tuple[ServiceProcess, dict[str, str]]) -> None:
    service, tokens = protected
    with RemoteSession.create(service.url, "cartpole-swingup", access_token=tokens["run"]) as session:
        with pytest.raises(ServiceError, match="403"):
            RemoteSession(service.url, session.description)
        with pytest.raises(ServiceError, match="403"):
            RemoteSession(service.url, session.description, access_token=tokens["read"])
        path = f"{service.url}/v1/sessions/{session.description['id']}/state"
        assert httpx.get(path, headers={"x-session-token": session.description["token"]}).status_code == 401


def test_only_hashes_are_stored(protected: tuple[ServiceProcess, dict[str, str]]) -> None:
    service, tokens = protected
    stored = b"".join(path.read_bytes() for path in service.data.glob("service.db*"))
    assert all(token.encode() not in stored for token in tokens.values())


def test_tokens_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--data", str(tmp_path)]
    assert main(["sim", "tokens", "create", "ci", "--scope", "read", *data]) == 0
    printed = capsys.readouterr()
    token = printed.out.removesuffix("\n")
    assert "This is shown once" in printed.err
    assert TokenStore(open_database(default_database(tmp_path))).find(token) == ("ci", "read")
    assert main(["sim", "tokens", "create", "ci", *data]) == 2
    assert "a token named 'ci' exists" in capsys.readouterr().err
    assert main(["sim", "tokens", "list", *data]) == 0
    assert "ci" in capsys.readouterr().out
    assert main(["sim", "tokens", "revoke", "ci", *data]) == 0
    assert TokenStore(open_database(default_database(tmp_path))).find(token) is None
    assert main(["sim", "tokens", "revoke", "ci", *data]) == 2


def test_tokens_of_a_file_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PhysaiError, match=r"`data` .*file: .*exists"):
        list_tokens(data=tmp_path / "file")


def test_a_token_from_a_file_is_stored_again_and_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What deploys a service says it at every start, and changes the file to change the token."""
    file, store = tmp_path / "token", TokenStore(open_database(default_database(tmp_path)))
    create = [
        "sim",
        "tokens",
        "create",
        "admin",
        "--scope",
        "admin",
        "--token-file",
        str(file),
        "--data",
        str(tmp_path),
    ]
    first, second = (f"physai_{letter * 43}" for letter in "ab")
    for token in (first, first, second):
        file.write_text(f"{token}\n")
        assert main(create) == 0
        assert token not in capsys.readouterr().out
        assert store.find(token) == ("admin", "admin")
    assert store.find(first) is None
    assert store.count() == 1
    assert main([*create[:3], "other", *create[4:]]) == 2
    assert "this token is stored as 'admin'" in capsys.readouterr().err
    for bad in ("", "physai_short", f"physai_{'a' * 257}", f"{'a' * 50}", f"physai_{'é' * 43}"):
        file.write_text(bad)
        assert main(create) == 2
        assert "43 to 256" in capsys.readouterr().err
    assert main([*create[:7], str(tmp_path / "none"), *create[8:]]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(["sim", "tokens", "list", "--token-file", str(file), "--data", str(tmp_path)]) == 2
    assert "no option --token-file" in capsys.readouterr().err


def test_off_loopback_it_needs_tls_and_a_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    arguments = ["sim", "serve", "--host", "0.0.0.0", "--data", str(data)]
    assert main(arguments) == 2
    assert "--tls-cert and --tls-key are needed" in capsys.readouterr().err
    certificate, key = self_signed(tmp_path)
    protected = [*arguments, "--tls-cert", str(certificate), "--tls-key", str(key)]
    assert main(protected) == 2
    assert "there is no token; create one first: physai sim tokens create" in capsys.readouterr().err
    assert main([*arguments, "--tls-cert", str(certificate)]) == 2
    assert "belong together" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "0"], "--port must lie in 1"),
        (["--workers", "-1"], "--workers must lie in 0"),
        (["--db", "nonsense"], "database URL 'nonsense' cannot be used"),
        (["--db", "postgresql+psycopg://nobody@127.0.0.1:1/none"], "cannot be used"),
        (["--tls-cert", "/dev/null", "--tls-key", "/dev/null"], "give a certificate and its private key"),
        (
            ["--tls-cert", "none.crt", "--tls-key", "none.key"],
            "--tls-cert none.crt and --tls-key none.key cannot be us",
        ),
    ],
)
def test_what_cannot_be_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    port = ["--port", str(free_port())]
    assert main(["sim", "serve", "--data", str(tmp_path / "data"), *port, *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_first_token_closes_a_running_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_service(tmp_path / "data", workers=0) as service:
        jobs = f"{service.url}/v1/jobs"
        assert httpx.get(jobs).status_code == 200
        assert main(["sim", "tokens", "create", "ci", "--scope", "read", "--data", str(tmp_path / "data")]) == 0
        token = capsys.readouterr().out.split()[0]
        until(lambda: httpx.get(jobs).status_code == 401)
        assert httpx.get(jobs, headers={"authorization": f"Bearer {token}"}).status_code == 200
