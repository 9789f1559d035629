"""The compose file starts the service with options that exist, and its image installs extras that exist."""

import argparse
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

from physai.sim.cli.serve import command

DOCKER = Path(__file__).parents[4] / "docker"


def parse(words: list[str]) -> argparse.Namespace:
    """What `physai` makes of these words."""
    assert words[:2] == ["sim", "serve"]
    parser = argparse.ArgumentParser(exit_on_error=False)
    command.add_arguments(parser)
    return parser.parse_args(words[2:])


def test_the_command_is_one_of_ours() -> None:
    services: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))["services"]
    arguments = parse(services["service"]["command"])
    assert arguments.data == Path("/data")
    assert arguments.db.startswith("postgresql+psycopg://physai@127.0.0.1/")
    assert services["database"]["environment"]["POSTGRES_USER"] == "physai"
    assert (DOCKER / services["service"]["build"]["context"] / services["service"]["build"]["dockerfile"]).is_file()


def test_the_image_starts_the_service_with_extras_that_exist() -> None:
    text = (DOCKER / "sim.Dockerfile").read_text("utf-8")
    (words,) = re.findall(r"^CMD (\[.*\])$", text, re.M)
    assert parse(json.loads(words)).data == Path("/data")
    (extras,) = re.findall(r"'\.\[(.*)\]'", text)
    project = tomllib.loads((DOCKER.parent / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
