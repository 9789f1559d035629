"""`physai flash --server`: registered bundles, reports of what became of them, and services that are no help."""

import json
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fixtures.sample import SampleSigners
from tests.harness.fixtures.ssh_robot import SshRobot, patient_bundle

from physai.deploy_jetson.update.flash import installation_reports
from physai.deploy_jetson.update.flash.bundle_upload import BundleUpload
from physai.sdk.bundle.registered import cache_folder
from physai.sdk.cli.main import main
from physai.service import ServiceClient
from physai.service.auth.tokens import TokenStore
from physai.service.client.service import request
from physai.service.database.engine import open_database
from physai.service.serving.process import ServiceProcess, free_port, running_service
from physai.service.settings import default_database

Lines = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[ServiceProcess, dict[str, str]]]:
    """A service, and tokens of two scopes."""
    data = tmp_path_factory.mktemp("service") / "data"
    data.mkdir()
    store = TokenStore(open_database(default_database(data)))
    tokens = {"read": store.create("reader", "read"), "run": store.create("cell-operator", "run")}
    with running_service(data, workers=0) as service:
        yield service, tokens


@pytest.fixture
def service(
    protected: tuple[ServiceProcess, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ServiceProcess:
    """A service that this user may report to, and an empty cache."""
    running, tokens = protected
    monkeypatch.setenv("PHYSAI_TOKEN", tokens["run"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return running


@pytest.fixture
def file(small: BundleUpload, tmp_path: Path) -> Path:
    path = tmp_path / "small.physai"
    path.write_bytes(small.members.data)
    return path


def unit(protected: tuple[ServiceProcess, dict[str, str]], name: str) -> dict[str, Any]:
    """What the service says of one robot."""
    service, tokens = protected
    units = request("GET", service.url, "/v1/installations/latest", access_token=tokens["read"])
    return next(found for found in units if found["unit"] == name)


def flash(robot: SshRobot, bundle: object, *options: object, host: str | None = None) -> int:
    arguments = ["flash", host or robot.target, bundle, "--root", robot.root, *options]
    return main([str(argument) for argument in arguments])


def test_a_published_bundle_is_flashed_and_reported(
    protected: tuple[ServiceProcess, dict[str, str]],
    service: ServiceProcess,
    pendulum: SshRobot,
    small: BundleUpload,
    file: Path,
    capsys: Lines,
) -> None:
    assert main(["bundle", "push", str(file), "--server", service.url]) == 0
    assert f"physai flash HOST {small.sha256[:12]} --server {service.url}" in capsys.readouterr().out
    assert flash(pendulum, small.sha256[:12], "--server", service.url) == 0
    assert "warning" not in capsys.readouterr().err
    assert pendulum.active_version == 1
    name = str(pendulum.target)
    found = unit(protected, name)
    assert found["runs"] == found["latest"]
    assert (found["runs"]["outcome"], found["runs"]["reported_by"]) == ("on-trial", "cell-operator")
    assert (found["runs"]["bundle"], found["runs"]["policy"]) == (small.sha256, small.members.sha256("policy.onnx"))
    (entry,) = ServiceClient(service.url, access_token=protected[1]["read"]).entries("bundle")
    assert entry["policy"] == found["runs"]["policy"]
    with pendulum.running():
        assert flash(pendulum, file, "--server", f"{service.url}/", "--wait", host=f"root@{name}") == 0
    later = unit(protected, name)["runs"]
    assert (later["outcome"], later["since"]) == ("committed", found["runs"]["since"])
    assert "ticks" in later["reason"]


def test_a_bundle_in_the_cache_needs_no_service(
    pendulum: SshRobot, small: BundleUpload, tmp_path: Path, capsys: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder().mkdir(parents=True)
    (cache_folder() / f"{small.sha256}.physai").write_bytes(small.members.data)
    url = f"http://127.0.0.1:{free_port()}"
    assert flash(pendulum, small.sha256, "--server", url) == 0
    printed = capsys.readouterr()
    assert "version 1 of swingup is active, on trial" in printed.out
    assert f"warning: {url} was not told of 1 of 1 robots: {url} cannot be reached: Connection refused" in printed.err


def test_a_service_that_never_answers_fails_no_flash(
    pendulum: SshRobot, file: Path, capsys: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation_reports, "REPORT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert flash(pendulum, file, "--server", f"http://127.0.0.1:{silent.getsockname()[1]}", "--json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["outcome"] == "on-trial"
    assert "was not told of 1 of 1 robots" in printed.err
    assert "flash again: a robot that runs the bundle already is left alone" in printed.err


def test_a_token_without_the_right_fails_no_flash(
    protected: tuple[ServiceProcess, dict[str, str]],
    service: ServiceProcess,
    pendulum: SshRobot,
    file: Path,
    capsys: Lines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PHYSAI_TOKEN", protected[1]["read"])
    assert flash(pendulum, file, "--server", service.url) == 0
    assert "this needs a token of scope run; the token 'reader' has read (HTTP 403)" in capsys.readouterr().err


def test_the_registry_gives_no_right_to_a_robot(
    protected: tuple[ServiceProcess, dict[str, str]],
    service: ServiceProcess,
    pendulum: SshRobot,
    file: Path,
    small: BundleUpload,
    tmp_path: Path,
    capsys: Lines,
) -> None:
    """A stranger's bundle is registered, but the robot verifies the signatures itself."""
    assert flash(pendulum, file, "--server", service.url) == 0
    with pendulum.running():
        assert flash(pendulum, file, "--server", service.url, "--wait") == 0
    capsys.readouterr()
    (tmp_path / "stranger.physai").write_bytes(patient_bundle(SampleSigners(), 2))
    assert main(["bundle", "push", str(tmp_path / "stranger.physai"), "--server", service.url, "--json"]) == 0
    digest = json.loads(capsys.readouterr().out)["sha256"]
    assert flash(pendulum, digest[:8], "--server", service.url) == 2
    found = unit(protected, str(pendulum.target))
    assert (found["latest"]["outcome"], found["latest"]["bundle"]) == ("failed", digest)
    assert "publisher" in found["latest"]["reason"]
    assert found["runs"]["bundle"] == small.sha256


def test_a_fleet_is_reported_robot_by_robot(
    protected: tuple[ServiceProcess, dict[str, str]],
    service: ServiceProcess,
    pendulum: SshRobot,
    file: Path,
    tmp_path: Path,
    capsys: Lines,
) -> None:
    gone = f"127.0.0.1:{free_port()}"
    hosts = [{"host": str(pendulum.target), "root": str(pendulum.root)}, gone, "never-begun"]
    (tmp_path / "fleet.yaml").write_text(json.dumps({"hosts": hosts, "canaries": 2, "parallel": 1}))
    with pendulum.running():
        assert main(["flash", str(file), "--group", str(tmp_path / "fleet.yaml"), "--server", service.url]) == 1
    assert unit(protected, str(pendulum.target))["latest"]["outcome"] == "committed"
    found = unit(protected, gone)
    assert (found["runs"], found["latest"]["outcome"]) == (None, "failed")
    with pytest.raises(StopIteration):
        unit(protected, "never-begun")
    assert "warning" not in capsys.readouterr().err, "what was skipped is not reported"


@pytest.mark.parametrize(
    ("bundle", "options", "message"),
    [
        ("0123abcd", [], "no such file; if it is the SHA-256 of a registered bundle, add --server URL"),
        ("0123abcd", ["--server", "URL"], "0123abcd names 0 bundles at URL (none)"),
        ("0123abc", ["--server", "URL"], "cannot be read"),
        ("0" * 64, ["--server", "URL"], "no file has SHA-256 000"),
        ("0123abcd", ["--server", "file:///etc"], "'file:///etc' is no address of a service"),
    ],
)
def test_what_names_no_bundle(
    service: ServiceProcess, bundle: str, options: list[str], message: str, capsys: Lines
) -> None:
    assert main(["flash", "host", bundle, *(option.replace("URL", service.url) for option in options)]) == 2
    assert message.replace("at URL", f"at {service.url}") in capsys.readouterr().err
