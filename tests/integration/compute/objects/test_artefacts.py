"""Artefacts on a real S3 server on loopback, in folders and in memory: what is read is what was written, or nothing."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest
from tests.support.s3_server import BUCKET

from physai.compute.objects.address import Address, ArtefactError, explained
from physai.compute.objects.manifest import (
    MANIFEST,
    MANIFEST_FILE,
    MAX_FILES,
    OBJECTS_FOLDER,
    ArtefactManifest,
    FileEntry,
)
from physai.compute.objects.transfer import pull, push, show
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.base.process.software import running_software
from physai.sdk.cli.main import main

PUSH = "import sys; from physai.sdk.cli.main import main; sys.exit(main(['artefacts', 'push', *sys.argv[1:]]))"


@pytest.fixture(params=["s3", "file", "memory"])
def place(request: pytest.FixtureRequest, server: str, tmp_path: Path) -> Address:
    """An empty place in each kind of store."""
    name = sha256(str(tmp_path).encode()).hexdigest()[:12]
    return Address.parse(
        {"s3": f"s3://{BUCKET}/{name}", "file": str(tmp_path / "store"), "memory": f"memory://{name}"}[request.param]
    )


def run_folder(folder: Path, *, seed: int = 0) -> Path:
    """Files of several sizes, one twice, a private one, and empty folders."""
    random_ = random.Random(seed)
    (folder / "export" / "empty").mkdir(parents=True)
    (folder / "checkpoint.pt").write_bytes(random_.randbytes(300_000))
    (folder / "export" / "policy.onnx").write_bytes(random_.randbytes(20_000))
    (folder / "export" / "copy.onnx").write_bytes((folder / "export" / "policy.onnx").read_bytes())
    (folder / "nothing").write_bytes(b"")
    (folder / "run.key").write_bytes(random_.randbytes(32))
    (folder / "run.key").chmod(0o600)
    return folder


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}


def write(address: Address, data: bytes) -> None:
    with address.filesystem().open(address.path, "wb") as file:
        file.write(data)


def test_what_is_pulled_is_what_was_pushed(place: Address, tmp_path: Path) -> None:
    source = run_folder(tmp_path / "run")
    manifest = push(source, place)
    assert pull(place, tmp_path / "back").content_sha256 == manifest.content_sha256
    assert contents(tmp_path / "back") == contents(source)
    assert (tmp_path / "back" / "run.key").stat().st_mode & 0o777 == 0o600
    assert show(place).size == 300_000 + 20_000 + 20_000 + 32
    # Equal files are one object.
    assert len(place.filesystem().ls((place / OBJECTS_FOLDER).path)) == 4


def test_a_single_file(place: Address, tmp_path: Path) -> None:
    (tmp_path / "reach.physai").write_bytes(b"bundle")
    push(tmp_path / "reach.physai", place)
    pull(place, tmp_path / "other name")
    assert (tmp_path / "other name").read_bytes() == b"bundle"
    with pytest.raises(ArtefactError, match="exists"):
        pull(place, tmp_path / "other name")


def test_a_later_artefact_replaces_an_earlier_one(place: Address, tmp_path: Path) -> None:
    first, second = run_folder(tmp_path / "1", seed=1), run_folder(tmp_path / "2", seed=2)
    push(first, place)
    push(second, place)
    pull(place, tmp_path / "back")
    assert contents(tmp_path / "back") == contents(second)


def test_a_changed_object_is_refused_with_both_hashes(place: Address, tmp_path: Path) -> None:
    push(run_folder(tmp_path / "run"), place)
    entry = show(place).files["export/policy.onnx"]
    damaged = bytes(entry.size)
    write(place / OBJECTS_FOLDER / entry.sha256, damaged)
    with pytest.raises(ArtefactError) as refused:
        pull(place, tmp_path / "back")
    assert entry.sha256 in str(refused.value)
    assert sha256(damaged).hexdigest() in str(refused.value)
    for size in (entry.size - 1, entry.size + 1):
        write(place / OBJECTS_FOLDER / entry.sha256, bytes(size))
        with pytest.raises(ArtefactError, match=f"{size} bytes .*instead of {entry.size}"):
            pull(place, tmp_path / "back")
    store = place.filesystem()
    store.rm((place / OBJECTS_FOLDER / entry.sha256).path)
    with pytest.raises(ArtefactError, match="missing, though the manifest names it"):
        pull(place, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".back")] == []


@pytest.mark.parametrize(
    "name", [".", "../out", "/etc/out", "a/../../out", "a//b", "./a", "a\\b", "a\nb", "nowhere/file"]
)
def test_a_manifest_that_leads_out_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    place = Address.parse(str(tmp_path / "store"))
    push(run_folder(tmp_path / "run"), place)
    document = json.loads((tmp_path / "store" / MANIFEST_FILE).read_text())
    document["files"][name] = document["files"].pop("nothing")
    (tmp_path / "store" / MANIFEST_FILE).write_text(json.dumps(document))
    with pytest.raises(ArtefactError, match=r"is no path inside the artefact|is in no folder"):
        pull(place, tmp_path / "back")
    assert not (tmp_path / "out").exists()


def test_in_a_folder_the_object_of_a_private_file_is_private(tmp_path: Path) -> None:
    """Who may read a cache that several users share could sign as the run otherwise."""
    manifest = push(run_folder(tmp_path / "run"), Address.parse(str(tmp_path / "store")))
    objects = tmp_path / "store" / OBJECTS_FOLDER
    assert (objects / manifest.files["run.key"].sha256).stat().st_mode & 0o077 == 0
    umask = os.umask(0o022)
    os.umask(umask)
    assert (objects / manifest.files["checkpoint.pt"].sha256).stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_store_that_is_full_keeps_the_earlier_artefact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    store.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(store)], check=False)
    if mounted.returncode != 0:
        pytest.skip("a small file system can be mounted by root only")
    try:
        address = store / "policy"
        (tmp_path / "first").write_bytes(bytes(60_000))
        push(tmp_path / "first", Address.parse(str(address)))
        before = contents(store)
        (tmp_path / "second").write_bytes(bytes(90_000))
        assert main(["artefacts", "push", str(tmp_path / "second"), str(address)]) == 2
        assert "policy: cannot be written: no space left on device" in capsys.readouterr().err.replace("\n", "")
        assert contents(store) == before
    finally:
        subprocess.run(["umount", str(store)], check=True)


def test_a_pipe_in_a_store_is_refused(tmp_path: Path) -> None:
    """It would block a reader for ever; here it has the right content, so that a reader that took it would end."""
    place = Address.parse(str(tmp_path / "store"))
    (tmp_path / "file").write_bytes(b"data")
    pipe = Path((place / OBJECTS_FOLDER / push(tmp_path / "file", place).files["file"].sha256).path)
    pipe.unlink()
    os.mkfifo(pipe)

    def write_into_it() -> None:
        with suppress(OSError):
            pipe.write_bytes(b"data")

    threading.Thread(target=write_into_it, daemon=True).start()
    with pytest.raises(ArtefactError, match="not a regular file"):
        pull(place, tmp_path / "back")


def test_a_folder_of_another_user_is_not_said_to_need_credentials() -> None:
    with pytest.raises(ArtefactError) as caught, explained(Address.parse("/shared/key"), "read"):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/shared/key/objects/a")
    assert "access was denied to /shared/key/objects/a; ask its owner for it" in str(caught.value)


def test_what_could_not_be_read_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of braces, in names or not, a JSON document may have 32,768; here are 150 · 240."""
    for folder in ("braces", "lines"):
        (tmp_path / folder).mkdir()
    for number in range(150):
        (tmp_path / "braces" / ("{" * 240 + str(number))).write_bytes(b"")
    (tmp_path / "lines" / "two\nlines").write_bytes(b"")
    assert "objects and arrays" in refused(capsys, "push", tmp_path / "braces", tmp_path / "store")
    assert "'two\\nlines' is no path" in refused(capsys, "push", tmp_path / "lines", tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_the_largest_manifest_can_be_read() -> None:
    entry = FileEntry(sha256="0" * 64, size=1)
    manifest = ArtefactManifest(
        kind="folder",
        files={f"{number}": entry for number in range(MAX_FILES)},
        created="2026-01-01T00:00:00Z",
        software=running_software(),
    )
    assert MANIFEST.parse(ArtefactManifest, canonical_json(manifest), source="it") == manifest


def test_links_and_pipes_are_refused(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    (run / "link").symlink_to("checkpoint.pt")
    with pytest.raises(ArtefactError, match="is a symbolic link"):
        push(run, Address.parse(str(tmp_path / "store")))
    (run / "link").unlink()
    os.mkfifo(run / "pipe")
    with pytest.raises(ArtefactError, match="not a regular file"):
        push(run, Address.parse(str(tmp_path / "store")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ftp://host/x", "is no address"),
        ("simplecache::s3://bucket/x", "is no address"),
        ("s3://bucket/a::b", "`::`"),
        ("s3://bucket/../other", r"`\.\.`"),
        ("s3://bucket/*", "plain address"),
        ("s3://", "is no address"),
        ("file://relative", "is relative"),
    ],
)
def test_addresses_that_lead_elsewhere_are_refused(text: str, message: str) -> None:
    with pytest.raises(ArtefactError, match=message):
        Address.parse(text)


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main(["artefacts", *map(str, words)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error


def test_errors_say_what_to_do(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_bytes(b"data")
    assert "there is no bucket 'missing'" in refused(capsys, "push", tmp_path / "file", "s3://missing/x")
    assert "there is no bucket 'missing'" in refused(capsys, "show", "s3://missing/x")
    assert "no artefact is there" in refused(capsys, "show", f"s3://{BUCKET}/nothing")
    assert "no such file" in refused(capsys, "push", tmp_path / "missing", f"s3://{BUCKET}/x")
    assert main(["artefacts", "push", str(tmp_path / "file"), f"s3://{BUCKET}/file"]) == 0
    capsys.readouterr()
    assert "expected 000" in refused(capsys, "pull", f"s3://{BUCKET}/file", tmp_path / "back", "--sha256", "0" * 64)


@pytest.mark.parametrize("change", ["credentials", "server"])
def test_missing_credentials_and_servers_are_named(server: str, tmp_path: Path, change: str) -> None:
    (tmp_path / "file").write_bytes(b"data")
    environment = {**os.environ, "HOME": str(tmp_path), "AWS_MAX_ATTEMPTS": "1"}
    if change == "credentials":
        del environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]
    else:
        environment["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9"
    words = [sys.executable, "-c", PUSH, str(tmp_path / "file"), f"s3://{BUCKET}/x"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    expected = {
        "credentials": "there are no credentials; set AWS_ACCESS_KEY_ID",
        "server": "the server cannot be reached",
    }
    assert expected[change] in done.stderr


CUT = """
import atexit, os, signal, sys
import s3fs
left = int(os.environ["CUT_AT"])

def count():
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

def audit(event, arguments):
    if event == "os.rename" or (event == "open" and "/store/" in str(arguments[0])):
        count()

call = s3fs.S3FileSystem.call_s3

def counted(self, *arguments, **named):
    count()
    return call(self, *arguments, **named)

s3fs.S3FileSystem.call_s3 = counted
sys.addaudithook(audit)
atexit.register(lambda: print(int(os.environ["CUT_AT"]) - left, file=sys.stderr))
"""
NEVER = 10**6


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["s3", "file"])
def test_a_kill_leaves_the_earlier_artefact_or_the_new_one(server: str, tmp_path: Path, scheme: str) -> None:
    """The writer is killed before a random one of its requests to the server, or of its opens and renames."""
    address = f"s3://{BUCKET}/killed" if scheme == "s3" else str(tmp_path / "store")
    place, draw = Address.parse(address), random.Random(scheme)

    def pushed(source: Path, cut: int) -> "subprocess.CompletedProcess[str]":
        words = [sys.executable, "-c", CUT + PUSH, str(source), address]
        environment = {**os.environ, "CUT_AT": str(cut)}
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    whole = pushed(run_folder(tmp_path / "0"), NEVER)
    known = {show(place).content_sha256: tmp_path / "0"}
    steps = int(whole.stderr.split()[-1])
    assert steps >= 4
    earlier = source = tmp_path / "0"
    # Three different places, and none at last.
    for number, cut in enumerate([*draw.sample(range(steps), 3), NEVER], start=1):
        source = run_folder(tmp_path / str(number), seed=number)
        known[push(source, Address.parse(str(tmp_path / "aside"))).content_sha256] = source
        assert pushed(source, cut).returncode == (0 if cut == NEVER else -signal.SIGKILL)
        back = tmp_path / f"back {number}"
        found = pull(place, back).content_sha256
        assert contents(back) == contents(known[found])
        assert known[found] in (source, earlier)
        earlier = known[found]
    assert earlier == source
