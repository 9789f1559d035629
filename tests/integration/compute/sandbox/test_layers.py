"""Where a kernel or a container lacks a layer, it is named, and the reward runs only if that is accepted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

REWARD = "def reward(steps):\n    return steps['x'] * 2.0\n"
USE = """
import pathlib, sys, numpy
from physai.sdk.base.errors import PhysaiError
from physai.compute.sandbox.reward import UserReward
try:
    with UserReward(pathlib.Path(sys.argv[1]), without=sys.argv[2:]) as reward:
        print("scored", reward.score({"x": numpy.ones(2)}).tolist(), sorted(reward.missing))
except PhysaiError as error:
    print(error)
"""
# An old kernel or a container's profile that does not know Landlock's system calls, which is what this filter makes.
NO_LANDLOCK = """
import ctypes, struct
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
from physai.compute.sandbox.lockdown import filter_calls
load, at_least, give = 0x20, 0x35, 0x06
filter_calls(b"".join(struct.pack("<HBBI", *i) for i in [
    (load, 0, 0, 0), (at_least, 0, 2, 444), (at_least, 1, 0, 447), (give, 0, 0, 0x50000 | 38), (give, 0, 0, 0x7FFF0000)
]))
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(REWARD)
    return path


def use(program: str, mine: Path, *without: str, within: tuple[str, ...] = ()) -> str:
    command = [*within, sys.executable, "-c", program, str(mine), *without]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_user_namespaces(mine: Path) -> None:
    unshare = shutil.which("unshare")
    limit = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    if unshare is None or subprocess.run([unshare, "-Ur", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here, which the other tests then show")
    within = (unshare, "-Ur", "sh", "-c", limit, "sh")
    said = use(USE, mine, within=within)
    assert "mine.py: the sandbox lacks namespaces here (namespaces: No space left on device)" in said
    assert "accept that with `reward_without` namespaces" in said
    assert use(USE, mine, "landlock", within=within) == said
    assert use(USE, mine, "namespaces", within=within) == "scored [2.0, 2.0] ['namespaces']"


def test_without_landlock(mine: Path) -> None:
    said = use(NO_LANDLOCK + USE, mine)
    assert "mine.py: the sandbox lacks landlock here (landlock: Function not implemented)" in said
    assert use(NO_LANDLOCK + USE, mine, "landlock") == "scored [2.0, 2.0] ['landlock']"


# Python as other users see it, where it lies in a folder that is closed to them: seen in this mount namespace alone.
OPENED = """
set -e
mount --bind "$1" "$2" && mount -t tmpfs -o mode=755 tmpfs "$3" && mkdir -p "$1" && mount --move "$2" "$1"
shift 3
exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user")
def test_an_ordinary_user_has_all_layers() -> None:
    prefix = Path(sys.base_prefix).resolve()
    closed = next((folder for folder in [*prefix.parents][::-1] if not folder.stat().st_mode & 0o001), None)
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "mine.py"
        path.write_text(REWARD)
        within: tuple[str, ...] = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
        if closed is not None:
            (Path(folder) / "python").mkdir()
            within = ("unshare", "-m", "sh", "-c", OPENED, "sh", str(prefix), f"{folder}/python", str(closed))
        if subprocess.run([*within, sys.executable, "-c", "import physai.sim"], check=False, cwd="/").returncode:
            pytest.skip("an ordinary user cannot run this environment's Python")
        assert use(USE, path, within=within) == "scored [2.0, 2.0] []"
