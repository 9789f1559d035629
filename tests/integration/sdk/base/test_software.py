"""What an artefact says of the software that made it."""

import json
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.process import software
from physai.sdk.base.process.software import IMAGE_VARIABLE, Software, running_software

DIGEST = "sha256:" + "a" * 64
COMMIT = "1" * 40


@pytest.mark.parametrize(
    "text", ["latest", "sha256:" + "a" * 63, DIGEST + "a", DIGEST.upper(), DIGEST + "\n", "x" * 10_000]
)
def test_an_image_digest_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(IMAGE_VARIABLE, text)
    with pytest.raises(PhysaiError, match=IMAGE_VARIABLE) as refused:
        running_software()
    assert len(str(refused.value)) < 400


def test_the_image_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(IMAGE_VARIABLE, raising=False)
    assert "image" not in running_software().model_dump()
    monkeypatch.setenv(IMAGE_VARIABLE, DIGEST)
    assert running_software().image == DIGEST


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_checkout_has_a_commit_and_may_be_dirty(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    file = tmp_path / "module.py"
    file.write_text("a = 1\n")
    # Installed in the folder of another repository, a file is not tracked by it.
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    assert software._checkout(file) is None  # pyright: ignore[reportPrivateUsage]
    git(tmp_path, "add", "module.py")
    git(tmp_path, "commit", "-q", "-m", "second")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert software._checkout(file) == (commit, False)  # pyright: ignore[reportPrivateUsage]
    file.write_text("a = 2\n")
    assert software._checkout(file) == (commit, True)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"url": "https://x", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}, {"commit": COMMIT}),
        ({"url": "file:///x.whl", "archive_info": {"hashes": {"sha256": "b" * 64}}}, {"distribution_sha256": "b" * 64}),
        ({"url": "file:///x", "dir_info": {"editable": True}}, {}),
        ({"vcs_info": {"commit_id": "main"}}, {}),
        ([], {}),
    ],
)
def test_the_origin_of_an_installation(document: object, expected: dict[str, str]) -> None:
    """As PEP 610 lays it down."""
    assert software._origin(json.dumps(document)) == expected  # pyright: ignore[reportPrivateUsage]


def test_an_installation_from_an_index_is_known_by_its_files() -> None:
    first = "physai/sdk/a.py,sha256=x,3\nphysai/sdk/b.py,sha256=y,4\nphysai_sdk-1.dist-info/RECORD,,\n"
    other_order = "physai/sdk/b.py,sha256=y,4\nphysai/sdk/a.py,sha256=x,3\nphysai/sdk/__pycache__/a.pyc,,\n"
    found = software._listed_sha256(first)  # pyright: ignore[reportPrivateUsage]
    assert found == software._listed_sha256(other_order)  # pyright: ignore[reportPrivateUsage]
    assert found != software._listed_sha256(first.replace("=y", "=z"))  # pyright: ignore[reportPrivateUsage]
    assert software._listed_sha256("") is None  # pyright: ignore[reportPrivateUsage]


def test_what_is_unknown_is_left_out() -> None:
    assert Software(version="1").model_dump() == {"version": "1"}
    assert str(Software(version="1", commit=COMMIT, dirty=True, image=DIGEST)) == (
        "physai 1, commit 111111111111 with changes, image sha256:aaaaaaaaaaaa"
    )
    with pytest.raises(ValidationError):
        Software(version="1", commit="main")
