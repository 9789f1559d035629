"""`physai zoo`: the table of public policies is sound, and a fetch keeps all of a policy or nothing."""

import gzip
import hashlib
import io
import json
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from physai.foreign.description import PolicyDescription
from physai.foreign.errors import ForeignPolicyError
from physai.foreign.zoo import archives
from physai.foreign.zoo.fetch import fetch_policy
from physai.foreign.zoo.table import TABLE, Zoo, load_zoo
from physai.sdk.base.errors import UnknownNameError
from physai.sdk.base.plugins import contributions
from physai.sdk.cli.main import main
from physai.sim.robots import robot_names

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NETWORK, ROBOT, MESH = b"a network of 12 joints", b"<mujoco/>", bytes(range(256)) * 400
FILES = {
    "LICENSE": b"MIT License",
    "README.md": b"nothing that an import reads",
    "walk/policy.onnx": NETWORK,
    "walk/config.yaml": b"kp: 20\n",
    "walk/other/policy.onnx": b"another one",
    "robot/robot.xml": ROBOT,
    "robot/meshes/foot.stl": MESH,
    "robot/meshes/small/toe.stl": b"solid toe",
}
GITHUB = f"/acme/walks/tar.gz/{COMMIT}"
EXTRACTED = {
    "holosoma-inference": "w",
    "holosoma": "h",
    "tron1-rl-deploy-python": "limx",
    "robot-description": "limxrob",
    "booster_gym": "booster",
    "rl_sar": "rlsar",
    "unitree_rl_gym": "ugym",
    "unitree_rl_lab": "ulab",
    "unitree_rl_mjlab": "umjlab",
    "Berkeley-Humanoid-Lite": "bhl",
    "Berkeley-Humanoid-Lite-Assets": "bhla",
}
"""Folders of FOREIGN_FILES."""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def tar(files: dict[str, bytes], *more: tuple[tarfile.TarInfo, bytes], top: str = f"walks-{COMMIT}/") -> bytes:
    """An archive as GitHub makes it: all in one folder, the commit in a global header."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT, pax_headers={"comment": COMMIT}) as made:
        folder = tarfile.TarInfo(top.rstrip("/"))
        folder.type = tarfile.DIRTYPE
        made.addfile(folder)
        for name, content in files.items():
            entry = tarfile.TarInfo(top + name)
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
        for entry, content in more:
            made.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def wheel(files: dict[str, bytes], *more: tuple[zipfile.ZipInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in files.items():
            made.writestr(name, content)
        for entry, content in more:
            made.writestr(entry, content)
        info = "acme_walks-1.0.dist-info"
        made.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: acme-walks\nVersion: 1.0\nLicense: MIT\n")
        made.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{info}/RECORD", "")
    return buffer.getvalue()


@dataclass
class Publisher:
    """A server of archives and of a package index."""

    url: str = ""
    answers: dict[str, bytes] = field(default_factory=dict[str, bytes])
    stated: dict[str, int] = field(default_factory=dict[str, int])
    """Lengths that answers state, if they are not their own."""
    redirects: dict[str, str] = field(default_factory=dict[str, str])
    chunked: set[str] = field(default_factory=set[str])
    """Answers in chunks of which the last is missing."""
    hanging: set[str] = field(default_factory=set[str])
    """Answers that never end."""
    asked: list[str] = field(default_factory=list[str])


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    published, over = Publisher(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            published.asked.append(self.path)
            if self.path in published.redirects:
                self.send_response(302)
                self.send_header("location", published.redirects[self.path])
                self.end_headers()
                return
            content = published.answers.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("content-type", "text/html" if self.path.endswith("/") else "application/octet-stream")
            if self.path in published.chunked:
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"%x\r\n%s" % (len(content), content[:-7]))
                return
            length = len(content) + (1 << 20) * (self.path in published.hanging)
            self.send_header("content-length", str(published.stated.get(self.path, length)))
            self.end_headers()
            self.wfile.write(content)
            if self.path in published.hanging:
                self.wfile.flush()
                over.wait(60.0)

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    published.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv(archives.ARCHIVES_VARIABLE, published.url)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{published.url}/simple")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    yield published
    over.set()
    server.shutdown()
    server.server_close()
    thread.join()


def zoo(**changes: Any) -> Zoo:
    """A table of one policy and its robot in one repository, with changes of the policy."""
    files = {"source": "walks", "file": "walk/policy.onnx", "files": ["walk/config.yaml"]}
    policy = {
        **{"name": "acme-walk", **files, "sha256": {"walk/policy.onnx": sha256(NETWORK)}},
        **{"family": "physai", "robot": "acme", "distance_m": None, "note": ""},
        "settings": {"command": {"value": [[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], "reason": "no file states one"}},
    }
    robot = {
        **{"source": "walks", "file": "robot/robot.xml", "files": ["robot/meshes"]},
        "sha256": {"robot/robot.xml": sha256(ROBOT)},
    }
    info = "acme_walks-1.0.dist-info/METADATA"
    sources = {
        "walks": {"github": "acme/walks", "version": COMMIT, "licence": "MIT", "licence_files": ["LICENSE"]},
        "wheel": {"pypi": "acme-walks", "version": "1.0", "licence": "MIT", "licence_files": [info]},
    }
    document = {"format_version": 1, "sources": sources, "robots": {"acme": robot}, "policies": [{**policy, **changes}]}
    return Zoo.model_validate_json(json.dumps(document))


def refused(folder: Path, **changes: Any) -> str:
    """The message of a fetch that is refused and leaves nothing."""
    before = sorted(folder.iterdir())
    with pytest.raises(ForeignPolicyError) as caught:
        fetch_policy("acme-walk", out=folder / "walk", zoo=zoo(**changes))
    assert sorted(folder.iterdir()) == before
    return str(caught.value)


# The table.


def test_the_table_is_sound() -> None:
    table = load_zoo()
    assert len(table.policies) >= 15
    assert [name for name, count in Counter(one.name for one in table.policies).items() if count > 1] == []
    readers, robots = contributions("physai.policy_readers"), {*table.robots, *robot_names()}
    for policy in table.policies:
        assert policy.family in readers
        assert policy.robot in robots
        assert set(policy.settings) <= set(PolicyDescription.model_fields)
    for one in (*table.policies, *table.robots.values()):
        assert one.source in table.sources
        # Of a policy's networks, and of a robot's model.
        assert one.sha256
        assert set(one.sha256) <= {one.file, *one.files}
        assert all(len(digest) == 64 and set(digest) <= set("0123456789abcdef") for digest in one.sha256.values())
        assert {Path(path).suffix for path in one.sha256} <= {".onnx", ".data", ".pt", ".xml"}
    for source in table.sources.values():
        assert (source.github is None) != (source.pypi is None)
        assert len(source.version) == 40 or source.pypi
        assert source.licence
        assert source.licence_files
    used = {one.source for one in (*table.policies, *table.robots.values())}
    assert used == set(table.sources)
    assert {one.robot for one in table.policies} - set(robot_names()) == set(table.robots)


def test_the_table_has_no_file_of_a_policy() -> None:
    assert {path.suffix for path in TABLE.parent.iterdir() if path.is_file()} == {".py", ".json"}
    assert TABLE.stat().st_size < 1 << 15


@pytest.mark.parametrize(
    "changes",
    [
        {"file": "../policy.onnx"},
        {"files": ["/etc/passwd"]},
        {"files": ["walk/../../secret"]},
        {"sha256": {"walk/policy.onnx": "12ab"}},
        {"name": "../walk"},
        {"distance_m": -1.0},
    ],
)
def test_a_row_that_no_table_may_have_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        zoo(**changes)


@pytest.mark.skipif("FOREIGN_FILES" not in os.environ, reason="FOREIGN_FILES names no folder with the repositories")
def test_the_files_of_the_table_are_those_that_are_published() -> None:
    home, table = Path(os.environ["FOREIGN_FILES"]), load_zoo()
    assert set(EXTRACTED) == set(table.sources)
    for one in (*table.policies, *table.robots.values()):
        folder = home / EXTRACTED[one.source]
        for path in (one.file, *one.files, *table.sources[one.source].licence_files):
            assert (folder / path).exists(), path
        for path, digest in one.sha256.items():
            assert sha256((folder / path).read_bytes()) == digest, path


# A repository.


def test_a_fetch_has_the_files_of_the_policy_and_its_robot_and_no_others(publisher: Publisher, tmp_path: Path) -> None:
    publisher.answers[GITHUB] = tar(FILES)
    said: list[str] = []
    made = fetch_policy("acme-walk", out=tmp_path / "walk", zoo=zoo(), say=said.append)
    got = {
        path.relative_to(made.folder).as_posix(): path.read_bytes()
        for path in made.folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    unread = {"README.md", "walk/other/policy.onnx"}
    assert got == {f"walks/{name}": content for name, content in FILES.items() if name not in unread}
    assert publisher.asked == [GITHUB]
    assert said == [f"fetching github.com/acme/walks@{COMMIT[:8]}"]
    assert made.licences == {"walks": "MIT"}
    assert list(tmp_path.iterdir()) == [tmp_path / "walk"]
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o755


def test_it_says_the_command_that_imports_it(publisher: Publisher, tmp_path: Path) -> None:
    publisher.answers[GITHUB] = tar(FILES)
    # A shell splits the line at the space, unless it is quoted.
    folder = tmp_path / "my walk"
    made = fetch_policy("acme-walk", out=folder, zoo=zoo())
    words = shlex.split(made.command_line)
    assert words == list(made.command)
    assert words[:5] == [
        *("physai", "import", str(folder / "walks/walk/policy.onnx")),
        *("--model", str(folder / "walks/robot/robot.xml")),
    ]
    name, _, value = words[6].partition("=")
    assert (words[5], name, json.loads(value)) == ("--set", "command", [[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert words[7:] == ["-o", "runs/acme-walk"]
    for path in (words[2], words[4]):
        assert Path(path).is_file()


def test_a_built_in_robot_is_not_fetched(publisher: Publisher, tmp_path: Path) -> None:
    publisher.answers[GITHUB] = tar(FILES)
    made = fetch_policy("acme-walk", out=tmp_path / "walk", zoo=zoo(robot="go2", settings={}))
    assert made.command[3:5] == ("--model", "go2")
    assert not (made.folder / "walks" / "robot").exists()


def test_an_empty_folder_is_filled(publisher: Publisher, tmp_path: Path) -> None:
    publisher.answers[GITHUB] = tar(FILES)
    (tmp_path / "walk").mkdir()
    fetch_policy("acme-walk", out=tmp_path / "walk", zoo=zoo())
    assert (tmp_path / "walk" / "walks" / "walk" / "policy.onnx").read_bytes() == NETWORK


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_is_in_the_place_of_the_folder_stays(kind: str, publisher: Publisher, tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "walk", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "folder":
        place.mkdir()
        (place / "mine.txt").write_text("mine")
    elif kind == "file":
        place.write_text("mine")
    else:
        place.symlink_to(elsewhere)
    assert "exists and is not an empty folder; choose another one" in refused(tmp_path)
    assert publisher.asked == []
    assert list(elsewhere.iterdir()) == []


def test_another_file_than_the_one_that_was_tried_is_refused_with_both_hashes(
    publisher: Publisher, tmp_path: Path
) -> None:
    publisher.answers[GITHUB] = tar({**FILES, "walk/policy.onnx": b"changed"})
    said = refused(tmp_path)
    assert f"walks: walk/policy.onnx has the SHA-256 {sha256(b'changed')}, the table has {sha256(NETWORK)}" in said
    publisher.answers[GITHUB] = tar({**FILES, "robot/robot.xml": b"changed"})
    assert f"robot/robot.xml has the SHA-256 {sha256(b'changed')}" in refused(tmp_path)


def entry(name: str, *, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, target, size
    return made


TOP = f"walks-{COMMIT}"


@pytest.mark.parametrize("name", [f"{TOP}/../../escaped", f"{TOP}/walk/../../../escaped", "../escaped", "/escaped"])
def test_a_path_out_of_the_archive_is_refused(name: str, publisher: Publisher, tmp_path: Path) -> None:
    publisher.answers[GITHUB] = tar(FILES, (entry(name, size=4), b"evil"))
    assert f"{name!r} is outside its folder" in refused(tmp_path)
    assert not list(tmp_path.parent.glob("escaped"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_link_or_device_among_its_files_is_refused(kind: bytes, publisher: Publisher, tmp_path: Path) -> None:
    files = {name: content for name, content in FILES.items() if name != "walk/config.yaml"}
    publisher.answers[GITHUB] = tar(files, (entry(f"{TOP}/walk/config.yaml", kind=kind, target="/etc/passwd"), b""))
    assert "is a link or a device, expected a file" in refused(tmp_path)


def test_links_among_other_files_are_left_out(publisher: Publisher, tmp_path: Path) -> None:
    publisher.answers[GITHUB] = tar(FILES, (entry(f"{TOP}/lib.so", kind=tarfile.SYMTYPE, target="/lib.so.1"), b""))
    made = fetch_policy("acme-walk", out=tmp_path / "walk", zoo=zoo())
    assert not list(made.folder.rglob("lib.so"))


def test_a_folder_that_is_a_link_in_the_archive_leads_nowhere(publisher: Publisher, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link = entry(f"{TOP}/robot/meshes/small", kind=tarfile.SYMTYPE, target=str(outside))
    files = {name: content for name, content in FILES.items() if "toe" not in name}
    publisher.answers[GITHUB] = tar(files, (link, b""), (entry(f"{TOP}/robot/meshes/small/toe.stl", size=1), b"x"))
    assert "is a link or a device" in refused(tmp_path)
    assert list(outside.iterdir()) == []


def test_a_file_that_is_there_twice_is_refused(publisher: Publisher, tmp_path: Path) -> None:
    publisher.answers[GITHUB] = tar(FILES, (entry(f"{TOP}/walk/config.yaml", size=2), b"kp"))
    assert "cannot be unpacked: File exists" in refused(tmp_path)


def bomb(header: tarfile.TarInfo, zeros: int) -> bytes:
    """A gzip file of some kilobytes with a header and megabytes of zeros."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb") as made:
        made.write(header.tobuf(tarfile.GNU_FORMAT))
        for _ in range(zeros >> 20):
            made.write(bytes(1 << 20))
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["walk/policy.onnx", "unread.bin"])
def test_an_archive_that_unpacks_to_too_much_is_refused(name: str, publisher: Publisher, tmp_path: Path) -> None:
    publisher.answers[GITHUB] = bomb(entry(f"{TOP}/{name}", size=1 << 40), 8 << 20)
    start = time.monotonic()
    assert f"more than {archives.MAX_MEMBERS} members or {1 << 30} bytes unpacked" in refused(tmp_path)
    assert time.monotonic() - start < 5.0


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_name_of_megabytes_is_not_read(kind: bytes, publisher: Publisher, tmp_path: Path) -> None:
    publisher.answers[GITHUB] = bomb(entry(f"{TOP}/name", kind=kind, size=64 << 20), 64 << 20)
    assert f"a header of {64 << 20} bytes" in refused(tmp_path)


def test_an_archive_of_too_many_files_is_refused(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_MEMBERS", 20)
    publisher.answers[GITHUB] = tar(FILES, *((entry(f"{TOP}/empty/{n}"), b"") for n in range(20)))
    assert "more than 20 members" in refused(tmp_path)


def test_a_download_that_is_too_large_is_refused(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.answers[GITHUB] = tar(FILES)
    monkeypatch.setattr(archives, "MAX_DOWNLOAD_BYTES", len(publisher.answers[GITHUB]) - 1)
    assert f"{GITHUB}: more than {archives.MAX_DOWNLOAD_BYTES} bytes" in refused(tmp_path)


def test_a_download_that_breaks_off_is_refused(publisher: Publisher, tmp_path: Path) -> None:
    whole = tar(FILES)
    publisher.answers[GITHUB], publisher.stated[GITHUB] = whole[:-100], len(whole)
    assert "the download broke off; try again" in refused(tmp_path)
    publisher.answers[GITHUB] = whole
    publisher.chunked.add(GITHUB)
    assert "the download broke off; try again" in refused(tmp_path)


@pytest.mark.parametrize("left", [0, 5, 20, -1, -9, -300])
def test_half_an_archive_is_refused(left: int, publisher: Publisher, tmp_path: Path) -> None:
    publisher.answers[GITHUB] = tar(FILES)[:left]
    assert "the archive is damaged or broke off" in refused(tmp_path)


def test_an_archive_with_a_flipped_byte_is_refused(publisher: Publisher, tmp_path: Path) -> None:
    whole = tar(FILES)
    for place in range(12, len(whole), len(whole) // 12):
        publisher.answers[GITHUB] = whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]
        assert "the archive is damaged or broke off" in refused(tmp_path)


def test_a_repository_without_a_file_is_refused_by_its_name(publisher: Publisher, tmp_path: Path) -> None:
    publisher.answers[GITHUB] = tar({name: content for name, content in FILES.items() if "meshes" not in name})
    assert "has no robot/meshes" in refused(tmp_path)


def test_a_repository_that_is_gone_is_refused(publisher: Publisher, tmp_path: Path) -> None:
    assert f"{publisher.url}{GITHUB}: HTTP 404 Not Found; is the repository still public?" in refused(tmp_path)


def test_without_a_network_it_says_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv(archives.ARCHIVES_VARIABLE, address)
    said = refused(tmp_path)
    assert f"{address}{GITHUB} cannot be fetched: Connection refused" in said
    assert "set PHYSAI_GITHUB_ARCHIVES to a mirror, or fetch the policy on a computer with a network" in said


def test_a_redirection_is_followed_if_it_stays_as_safe(publisher: Publisher, tmp_path: Path) -> None:
    publisher.answers["/mirror.tar.gz"] = tar(FILES)
    publisher.redirects[GITHUB] = f"{publisher.url}/mirror.tar.gz"
    made = fetch_policy("acme-walk", out=tmp_path / "walk", zoo=zoo())
    assert (made.folder / "walks" / "walk" / "policy.onnx").read_bytes() == NETWORK
    for target in ("ftp://127.0.0.1/mirror.tar.gz", "https://127.0.0.1/mirror.tar.gz"):
        publisher.redirects[GITHUB] = target
        shutil.rmtree(tmp_path / "walk", ignore_errors=True)
        assert f"leads to {target}, which is not encrypted alike" in refused(tmp_path)


@pytest.mark.parametrize("address", ["file:///etc", "mirror", "http://a b"])
def test_a_mirror_that_is_no_address_is_refused(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(archives.ARCHIVES_VARIABLE, address)
    assert f"{archives.ARCHIVES_VARIABLE} is {address!r}, expected an address" in refused(tmp_path)


def test_a_folder_that_cannot_be_written_is_told(publisher: Publisher, tmp_path: Path) -> None:
    publisher.answers[GITHUB] = tar(FILES)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ForeignPolicyError, match="cannot be written"):
        fetch_policy("acme-walk", out=tmp_path / "file" / "walk", zoo=zoo())
    assert (tmp_path / "file").read_text() == "mine"


def test_an_interrupted_download_leaves_nothing(publisher: Publisher, tmp_path: Path) -> None:
    name = "booster-t1"
    source = load_zoo().sources[load_zoo().policy(name).source]
    path = f"/{source.github}/tar.gz/{source.version}"
    publisher.answers[path] = bytes(1 << 20)
    publisher.hanging.add(path)
    work = tmp_path / "work"
    work.mkdir()
    code = f"from physai.foreign.zoo.fetch import fetch_policy; fetch_policy({name!r}, out='walk')"
    environment = {**os.environ, "TMPDIR": str(work)}
    child = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
    wait_for(lambda: any(file.stat().st_size > 1 << 16 for file in work.rglob("*.tar.gz")))
    assert len(list(tmp_path.iterdir())) == 2
    child.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in child.communicate(timeout=30.0)[1]
    assert list(tmp_path.iterdir()) == [work]
    assert list(work.iterdir()) == []


def wait_for(happened: Callable[[], bool], *, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


# A wheel.

INDEX, WHEEL = "/simple/acme-walks/", "/simple/acme-walks/acme_walks-1.0-py3-none-any.whl"
IN_WHEEL: dict[str, Any] = {
    **{"source": "wheel", "file": "acme/policy.onnx", "files": ["acme/config"], "robot": "go2"},
    "sha256": {"acme/policy.onnx": sha256(NETWORK)},
}
WHEEL_FILES = {"acme/policy.onnx": NETWORK, "acme/config/robot.py": b"KP = 20", "acme/run.py": b"raise SystemExit"}


def publish(publisher: Publisher, content: bytes, path: str = WHEEL) -> None:
    publisher.answers[INDEX] = f'<html><body><a href="{path}">{path.rpartition("/")[2]}</a></body></html>'.encode()
    publisher.answers[path] = content


def test_a_wheel_is_fetched_by_pip_and_not_installed(publisher: Publisher, tmp_path: Path) -> None:
    publish(publisher, wheel(WHEEL_FILES))
    made = fetch_policy("acme-walk", out=tmp_path / "walk", zoo=zoo(**IN_WHEEL))
    got = sorted(path.relative_to(made.folder).as_posix() for path in made.folder.rglob("*") if path.is_file())
    assert got == [
        "wheel/acme/config/robot.py",
        "wheel/acme/policy.onnx",
        "wheel/acme_walks-1.0.dist-info/METADATA",
    ]
    assert INDEX in publisher.asked
    assert WHEEL in publisher.asked
    assert list(tmp_path.iterdir()) == [tmp_path / "walk"]


def zip_entry(name: str, mode: int = stat.S_IFREG) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    made.create_system, made.external_attr = 3, (mode | 0o644) << 16
    return made


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ((zip_entry("acme/../../escaped"), b"evil"), "'acme/../../escaped' is outside its folder"),
        ((zip_entry("/escaped"), b"evil"), "'/escaped' is outside its folder"),
        ((zip_entry("acme/config/link", stat.S_IFLNK), b"/etc/passwd"), "is a link or a device, expected a file"),
    ],
)
def test_a_wheel_with_what_no_policy_has_is_refused(
    made: tuple[zipfile.ZipInfo, bytes], said: str, publisher: Publisher, tmp_path: Path
) -> None:
    publish(publisher, wheel(WHEEL_FILES, made))
    assert said in refused(tmp_path, **IN_WHEEL)


def test_a_wheel_of_zeros_is_refused(publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 8 << 20)
    publish(publisher, wheel({**WHEEL_FILES, "acme/config/zeros": bytes(16 << 20)}))
    assert f"{8 << 20} bytes unpacked" in refused(tmp_path, **IN_WHEEL)


def test_a_wheel_that_lies_about_a_size_is_refused(publisher: Publisher, tmp_path: Path) -> None:
    content = bytearray(wheel({**WHEEL_FILES, "acme/config/zeros": bytes(1 << 20)}))
    # The size in the directory of the zip, which says one byte.
    place = content.rindex(b"acme/config/zeros") - 46 + 24
    assert int.from_bytes(content[place : place + 4], "little") == 1 << 20
    content[place : place + 4] = (1).to_bytes(4, "little")
    publish(publisher, bytes(content))
    assert "the archive is damaged or broke off" in refused(tmp_path, **IN_WHEEL)


def test_another_network_in_a_wheel_is_refused(publisher: Publisher, tmp_path: Path) -> None:
    publish(publisher, wheel({**WHEEL_FILES, "acme/policy.onnx": b"changed"}))
    assert f"has the SHA-256 {sha256(b'changed')}, the table has {sha256(NETWORK)}" in refused(tmp_path, **IN_WHEEL)


def test_a_source_distribution_is_not_built(publisher: Publisher, tmp_path: Path) -> None:
    mark = tmp_path.parent / f"{tmp_path.name}-built"
    files = {
        "pyproject.toml": b"[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
        "backend.py": f"open({str(mark)!r}, 'w')\n".encode(),
        "PKG-INFO": b"Metadata-Version: 2.1\nName: acme-walks\nVersion: 1.0\n",
    }
    publish(publisher, tar(files, top="acme_walks-1.0/"), f"{INDEX}acme_walks-1.0.tar.gz")
    assert "pip could not download acme-walks==1.0" in refused(tmp_path, **IN_WHEEL)
    assert not mark.exists()


def test_without_an_index_it_says_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    said = refused(tmp_path, **IN_WHEEL)
    assert "pip could not download acme-walks==1.0" in said
    assert "name an index in PIP_INDEX_URL, or a folder with the wheel in PIP_FIND_LINKS" in said


# The command.


def test_the_command_lists_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert [line.split()[0] for line in lines] == ["name", *(policy.name for policy in load_zoo().policies)]
    (booster,) = [line.split() for line in lines if line.startswith("booster-t1 ")]
    assert booster[1:5] == ["booster", "booster-t1", "Apache-2.0", "4.54"]
    assert "physai zoo fetch NAME" in printed.err
    assert main(["zoo", "list", "--json"]) == 0
    assert Zoo.model_validate_json(capsys.readouterr().out) == load_zoo()


def test_a_name_that_is_not_in_the_table_is_told_with_what_is_near(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnknownNameError, match="did you mean acme-walk"):
        fetch_policy("acme-wlak", zoo=zoo())
    assert main(["zoo", "fetch", "booster-t2"]) == 2
    assert "did you mean booster-t1" in capsys.readouterr().err


def test_the_command_ends_with_2_if_a_policy_cannot_be_had(
    publisher: Publisher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["zoo", "fetch", "booster-t1", "-o", str(tmp_path / "walk")]) == 2
    assert f"physai: error: {publisher.url}/BoosterRobotics/booster_gym/tar.gz/" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_holosomas_policies_come_from_the_index_of_pip_and_one_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    policies = [policy for policy in load_zoo().policies if policy.family == "holosoma"]
    assert len(policies) == 6
    for policy in policies:
        code, printed = main(["zoo", "fetch", policy.name]), capsys.readouterr()
        if code and "pip could not download" in printed.err:
            pytest.skip(printed.err.strip()[-300:])
        assert code == 0, printed.err
        words = shlex.split(printed.out)
        assert f"{policy.name}/holosoma-inference: Apache-2.0 (the wheel states no licence" in printed.err
        assert all(f"{name}: {setting.reason}" in printed.err for name, setting in policy.settings.items())
        assert Path(words[2]).is_file()
    code, printed = main(["zoo", "fetch", "holosoma-t1-ppo", "-o", "walk", "--json"]), capsys.readouterr()
    record = json.loads(printed.out)
    assert (code, record["policy"]["distance_m"]) == (0, 3.97)
    assert main(record["command"][1:]) == 0
    assert "imported from holosoma: 100 numbers seen, 29 joints" in capsys.readouterr().out
    assert (tmp_path / "runs" / "holosoma-t1-ppo" / "import.md").is_file()
