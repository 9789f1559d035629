"""What `docker/` starts and installs exists, and its build script does what it is asked."""

import argparse
import importlib
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from physai.sim.cli.serve import command

DOCKER = Path(__file__).parents[4] / "docker"


def parse(words: list[str]) -> argparse.Namespace:
    """What `physai` makes of these words."""
    assert words[:2] == ["sim", "serve"]
    parser = argparse.ArgumentParser(exit_on_error=False)
    command.add_arguments(parser)
    return parser.parse_args(words[2:])


def project_extras() -> dict[str, Any]:
    return tomllib.loads((DOCKER.parent / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]


def test_the_command_is_one_of_ours() -> None:
    services: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))["services"]
    arguments = parse(services["service"]["command"])
    assert arguments.data == Path("/data")
    assert arguments.db.startswith("postgresql+psycopg://physai@127.0.0.1/")
    assert services["database"]["environment"]["POSTGRES_USER"] == "physai"
    assert (DOCKER / services["service"]["build"]["context"] / services["service"]["build"]["dockerfile"]).is_file()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_cluster_is_started_with_options_that_ray_has() -> None:
    services: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))["services"]
    start = importlib.import_module("ray.scripts.scripts").start
    for name in ("ray-head", "ray-worker"):
        service = services[name]
        assert service["entrypoint"] == ["ray"]
        assert service["command"][0] == "start"
        parsed = start.make_context("start", list(service["command"][1:])).params
        assert parsed["head"] == (name == "ray-head")
        assert parsed["block"]
        assert service["environment"]["RAY_AUTH_MODE"] == "token"
    assert services["ray-worker"]["command"][1] == "--address=ray-head:6379"
    assert "--port=6379" in services["ray-head"]["command"]


@pytest.mark.parametrize("file", sorted(DOCKER.glob("*.Dockerfile")), ids=lambda file: file.name)
def test_images_install_extras_that_exist(file: Path) -> None:
    extras = set(project_extras())
    (chosen,) = re.findall(r"\[([a-z,]+|\$\{EXTRAS\})\](?:'|\")", file.read_text("utf-8"))
    if chosen == "${EXTRAS}":
        (chosen,) = re.findall(r"^ARG EXTRAS=(.*)$", file.read_text("utf-8"), re.M)
    assert set(chosen.split(",")) <= extras


@pytest.mark.parametrize("name", ["train", "sim", "robot"])
def test_our_own_images_run_without_root_and_list_what_they_hold(name: str) -> None:
    text = (DOCKER / f"{name}.Dockerfile").read_text("utf-8")
    assert re.search(r"^USER physai$", text, re.M)
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


def test_the_image_starts_the_service_with_extras_that_exist() -> None:
    text = (DOCKER / "sim.Dockerfile").read_text("utf-8")
    (words,) = re.findall(r"^CMD (\[.*\])$", text, re.M)
    assert parse(json.loads(words)).data == Path("/data")
    (extras,) = re.findall(r"'\.\[(.*)\]'", text)
    assert set(extras.split(",")) <= set(project_extras())
