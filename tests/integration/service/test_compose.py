"""What `docker/` starts and installs exists, and its build script does what it is asked."""

import argparse
import contextlib
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.patience import until
from tests.support.service import self_signed

from physai.service.cli.serve import command
from physai.service.serving.process import free_port
from physai.service.serving.server import prepare
from physai.service.settings import ServiceSettings, default_database

DOCKER = Path(__file__).parents[3] / "docker"
# Not what a user made there.
FILES = [path for path in sorted(DOCKER.rglob("*")) if path.is_file() and not {".env", "certs"} & set(path.parts)]


def parse(words: list[str]) -> argparse.Namespace:
    """What `physai` makes of these words."""
    assert words[:2] == ["sim", "serve"]
    parser = argparse.ArgumentParser(exit_on_error=False)
    command.add_arguments(parser)
    return parser.parse_args(words[2:])


def project_extras() -> dict[str, Any]:
    return tomllib.loads((DOCKER.parent / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]


def services() -> dict[str, Any]:
    return yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))["services"]


def served_words(service: dict[str, Any]) -> list[str]:
    """The words of `physai sim serve` in a service's command, of which a shell may run others before."""
    command = service["command"] if len(service["command"]) > 1 else shlex.split(service["command"][0])
    return command[command.index("sim") :]


@pytest.mark.parametrize("name", ["service", "service-on-ray"])
def test_the_command_is_one_of_ours(name: str) -> None:
    service, database = services()[name], services()["database"]
    arguments = parse(served_words(service))
    assert arguments.data == Path("/data")
    assert database["environment"]["POSTGRES_USER"] == "physai"
    host = "127.0.0.1" if service.get("network_mode") == "host" else "database"
    assert arguments.db == f"postgresql+psycopg://physai@{host}/physai"
    # What is published on the host's loopback is what a service in its network reaches.
    assert host == "database" or database["ports"] == ["127.0.0.1:5432:5432"]
    assert service["environment"]["PGPASSWORD"] == "${POSTGRES_PASSWORD}"
    assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert set(service["build"].get("args", {}).get("EXTRAS", "train").split(",")) <= set(project_extras())


def reachable(service: dict[str, Any], arguments: argparse.Namespace) -> bool:
    """Whether the host reaches what listens in the container."""
    if service.get("network_mode") == "host":
        return True
    given = vars(arguments)
    published = any(port.endswith(f":{given.get('port', 8800)}") for port in service.get("ports", ()))
    return published and given.get("host") == "0.0.0.0" and {"tls_cert", "tls_key"} <= set(given)


@pytest.mark.parametrize("name", ["service", "service-on-ray"])
def test_the_service_is_reached_from_the_host(name: str) -> None:
    service = services()[name]
    assert reachable(service, parse(served_words(service)))


def test_one_profile_starts_one_service_and_both_keep_the_same_data() -> None:
    local, on_ray = services()["service"], services()["service-on-ray"]
    assert (local["profiles"], on_ray["profiles"]) == (["local"], ["ray"])
    assert {"data:/data"} <= set(local["volumes"]) & set(on_ray["volumes"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_service_is_connected_with_the_cluster_that_is_started() -> None:
    start = importlib.import_module("ray.scripts.scripts").start
    head, worker = services()["service-on-ray"], services()["ray-worker"]
    words = shlex.split(head["command"][0])
    begin, serve = words[: words.index("&&")], words[words.index("&&") + 1 :]
    assert head["entrypoint"] == ["sh", "-c"]
    assert (begin[:2], serve[:2]) == (["ray", "start"], ["exec", "physai"])
    parsed = start.make_context("start", begin[2:]).params
    assert (parsed["head"], parsed["port"], parsed["num_cpus"]) == (True, 6379, 0)
    # Ray itself is in the container, so that `auto` finds it.
    assert not parsed["block"]
    assert parse(served_words(head)).ray == "auto"
    assert worker["entrypoint"] == ["ray"]
    parsed = start.make_context("start", list(worker["command"][1:])).params
    assert (parsed["head"], parsed["block"], parsed["address"]) == (False, True, "service-on-ray:6379")
    # Jobs run there: with the same programs, files and access to the database, on the network of both.
    for name in ("build", "volumes", "environment"):
        assert worker[name] == head[name]
    assert head["environment"]["RAY_AUTH_MODE"] == "token"
    assert not {"network_mode", "networks"} & (worker.keys() | head.keys() | services()["database"].keys())


@pytest.mark.parametrize("file", sorted(DOCKER.glob("*.Dockerfile")), ids=lambda file: file.name)
def test_images_install_extras_that_exist(file: Path) -> None:
    extras = set(project_extras())
    (chosen,) = re.findall(r"\[([a-z,]+|\$\{EXTRAS\})\](?:'|\")", file.read_text("utf-8"))
    if chosen == "${EXTRAS}":
        (chosen,) = re.findall(r"^ARG EXTRAS=(.*)$", file.read_text("utf-8"), re.M)
    assert set(chosen.split(",")) <= extras


def last_stage(file: Path) -> str:
    return re.split(r"^FROM .*$", file.read_text("utf-8"), flags=re.M)[-1]


def test_secrets_do_not_get_into_images() -> None:
    for name in (".dockerignore", ".gitignore"):
        assert {"docker/.env", "docker/certs"} <= set((DOCKER.parent / name).read_text("utf-8").splitlines())


@pytest.mark.parametrize("file", sorted(DOCKER.glob("*.Dockerfile")), ids=lambda file: file.name)
def test_no_image_runs_as_root(file: Path) -> None:
    text = last_stage(file)
    assert re.findall(r"^USER (\S+)$", text, re.M)[-1] == "physai"
    assert text.index("useradd --uid 1000") < text.rindex("USER physai") < text.index("ENTRYPOINT")


@pytest.mark.parametrize(
    "file", sorted(path for path in DOCKER.rglob("*") if path.is_file()), ids=lambda file: file.name
)
def test_every_file_that_is_named_exists(file: Path) -> None:
    text = file.read_text("utf-8")
    named = set(re.findall(r"(?<![\w/.-])(?:docker|\.ci|ros)/[\w./-]*\w", text))
    made = {"docker/.env", "docker/certs", "docker/certs/tls.key", "docker/certs/tls.crt"}
    assert [name for name in named - made if not (DOCKER.parent / name).exists()] == []
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.M):
        assert all((DOCKER.parent / source).exists() for source in sources.split())


@pytest.mark.parametrize("name", ["train", "sim", "robot"])
def test_our_own_images_list_what_they_hold(name: str) -> None:
    text = (DOCKER / f"{name}.Dockerfile").read_text("utf-8")
    assert "docker/sbom.sh /opt/physai" in text
    assert re.search(r"^ARG BASE=", text, re.M)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing"], "there is no image 'nothing', choose one of: jetson robot ros sim train"),
        (["../train"], "there is no image '../train'"),
        (["train", "--builder", "make"], "--builder must be docker, podman or buildah, got 'make'"),
        (["train", "--base"], "--base needs a value"),
        (["ros", "--base", "debian"], "docker/ros.Dockerfile takes no --base"),
    ],
)
def test_the_build_script_refuses_what_it_cannot_do(words: list[str], says: str) -> None:
    ended = subprocess.run([DOCKER / "build.sh", *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert says in ended.stderr


def test_the_build_script_hands_its_options_on(tmp_path: Path) -> None:
    """With a builder that prints what it is asked to do."""
    builder = tmp_path / "buildah"
    builder.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    builder.chmod(0o755)
    words = [DOCKER / "build.sh", "robot", "--builder", "buildah", "--base", "debian:x", "--platform", "linux/arm64"]
    printed = subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    ).stdout.split()
    assert printed[printed.index("-f") + 1] == "docker/robot.Dockerfile"
    assert printed[printed.index("-t") + 1] == "physai-robot"
    assert printed[printed.index("--build-arg") + 1] == "BASE=debian:x"
    assert printed[-3:] == ["--platform", "linux/arm64", "."]


def test_the_image_serves_where_a_published_port_reaches_it() -> None:
    text = (DOCKER / "sim.Dockerfile").read_text("utf-8")
    (words,) = re.findall(r"^CMD (\[.*\])$", text, re.M)
    (port,) = re.findall(r"^EXPOSE (\d+)$", text, re.M)
    arguments = parse(json.loads(words))
    assert arguments.data == Path("/data")
    assert reachable({"ports": [f"{port}:{port}"]}, arguments)


@pytest.mark.parametrize("tls", [False, True])
def test_the_images_health_check_asks_with_and_without_tls(tmp_path: Path, tls: bool) -> None:
    (words,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", (DOCKER / "sim.Dockerfile").read_text("utf-8"), re.M)
    check = [sys.executable, *json.loads(words)[1:]]
    port = free_port()

    def health() -> int:
        # The port of a container is its own.
        return subprocess.run([*check, str(port)], check=False, env=os.environ, timeout=60.0).returncode

    assert json.loads(words)[0] == "python"
    assert health() == 1
    with served(tmp_path, port, tls=tls):
        assert health() == 0


@contextlib.contextmanager
def served(folder: Path, port: int, *, tls: bool) -> Generator[None]:
    certificate, key = self_signed(folder) if tls else (None, None)
    data = folder / "data"
    settings = ServiceSettings(
        data=data, database=default_database(data), port=port, workers=0, tls_cert=certificate, tls_key=key
    )
    with prepare(settings) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        until(lambda: server.started)
        yield
        server.should_exit = True
        thread.join()
