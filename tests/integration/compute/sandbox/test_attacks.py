"""What a user's reward may not do, tried by a real one in a real process."""

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
from tests.support import reward_attacks
from tests.support.patience import until

from physai.compute.sandbox.reward import RewardLimits, UserReward, UserRewardError

ATTACKS = [attack.__name__ for attack in reward_attacks.ATTACKS]
STEPS = {"x": np.array([1.0, 2.0, 3.0])}


def written(folder: Path, source: str) -> Path:
    path = folder / "mine.py"
    path.write_text(source)
    return path


def refused(folder: Path, source: str, limits: RewardLimits | None = None) -> str:
    """What is said of a file whose call, or whose loading, fails."""
    path = written(folder, source)
    with pytest.raises(UserRewardError) as error, UserReward(path, limits=limits, label="mine.py") as reward:
        reward.score(STEPS)
    return str(error.value)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_ed25519").write_text("secret")
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "kept").chmod(0o600)
    return tmp_path


@pytest.fixture(scope="module")
def attacker() -> Generator[UserReward]:
    with UserReward(Path(reward_attacks.__file__)) as reward:
        yield reward


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused(attacker: UserReward, home: Path, attack: str) -> None:
    path = np.frombuffer(str(home).encode(), np.uint8).astype(np.float64)
    before = attacker.pid
    with pytest.raises(UserRewardError) as error:
        attacker.score({"path": path, "attack": np.full(len(path), ATTACKS.index(attack))})
    assert "reward_attacks.py, line " in str(error.value)
    # Refused threads and limits are told in Python's own words.
    assert any(said in str(error.value) for said in ("ermi", "can't start new thread", "not allowed to raise"))
    assert sorted(p.name for p in home.iterdir()) == [".ssh", "kept"]
    assert ((home / "kept").read_text(), (home / "kept").stat().st_mode & 0o777) == ("kept", 0o600)
    # It was refused, and nothing was killed.
    assert attacker.pid == before


def test_without_the_sandbox_they_succeed(home: Path) -> None:
    command = [sys.executable, reward_attacks.__file__, str(home)]
    found = subprocess.run(command, check=True, capture_output=True, text=True, start_new_session=True)
    # A container may refuse these two itself.
    assert set(ATTACKS) - set(found.stdout.split()) <= {"trace", "new_namespace"}, found.stderr


def test_it_is_locked_and_alone(attacker: UserReward) -> None:
    status = dict(line.split(":\t") for line in Path(f"/proc/{attacker.pid}/status").read_text().splitlines())
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert (status["NoNewPrivs"], status["Seccomp"], status["Threads"]) == ("1", "2", "1")
    assert attacker.missing == {}
    for namespace in ("net", "user", "ipc", "uts"):
        mine, its = (os.readlink(f"/proc/{pid}/ns/{namespace}") for pid in ("self", attacker.pid))
        assert mine != its
    # Nothing leads anywhere: no line but the names of the columns.
    assert len(Path(f"/proc/{attacker.pid}/net/route").read_text().splitlines()) <= 1
    held = {os.readlink(f"/proc/{attacker.pid}/fd/{number}").split(":")[0] for number in range(3)}
    assert held == {"/dev/null", "pipe"}
    assert len(os.listdir(f"/proc/{attacker.pid}/fd")) == 5
    environment = Path(f"/proc/{attacker.pid}/environ").read_bytes()
    assert b"HOME=/nonexistent" in environment
    assert b"PATH=" not in environment.replace(b"LD_LIBRARY_PATH=", b"")


def test_it_is_gone_after_close(tmp_path: Path) -> None:
    reward = UserReward(written(tmp_path, "def reward(steps): return steps['x']\n"))
    pid = reward.pid
    assert Path(f"/proc/{pid}").exists()
    reward.close()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("waiting", ["pass", "time.sleep(0.001)"])
def test_it_dies_with_its_parent(tmp_path: Path, waiting: str) -> None:
    path = written(tmp_path, f"import time\ndef reward(steps):\n    while True: {waiting}\n")
    program = (
        "import pathlib, sys, numpy\n"
        "from physai.compute.sandbox.reward import RewardLimits, UserReward\n"
        "reward = UserReward(pathlib.Path(sys.argv[1]), limits=RewardLimits(call_s=1000.0))\n"
        "print(reward.pid, flush=True)\n"
        "reward.score({'x': numpy.ones(1)})\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        begun = activity(child)
        # It waits for no request any more.
        until(lambda: activity(child) > begun + 20)
        parent.kill()
    until(lambda: activity(child) < 0)


def activity(pid: int) -> int:
    """Ticks of the processor and voluntary waits of a process so far; -1 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return -1
    if fields[0] == "Z":
        return -1
    return int(fields[11]) + int(fields[12]) + int(status.split("voluntary_ctxt_switches:")[1].split()[0])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ValueError('no\\x1b[31m such')", "mine.py, line 3: ValueError: no\\x1b[31m such"),
        ("return int('x')", "mine.py, line 3: ValueError: invalid literal"),
        ("return helper(x)", "mine.py, line 5: ZeroDivisionError: "),
        ("return x * float('nan')", "mine.py, line 2: reward() returned nan for step 0 of 3; return finite numbers"),
        ("return x / (x - 2.0)", "mine.py, line 2: reward() returned inf for step 1 of 3"),
        ("return 1.0", "mine.py: reward() returned an array of shape (), expected (3,): a number for each of 3 steps"),
        ("return [*x, 1.0]", "mine.py: reward() returned an array of shape (4,), expected (3,)"),
        ("return np.ones((3, 1 << 20))", "mine.py: reward() returned an array of shape (3, 1048576), expected (3,)"),
        ("return None", "mine.py: reward() returned an array of shape (), expected (3,)"),
        ("return ['a', 'b', 'c']", "mine.py: ValueError: could not convert string to float"),
        ("import sys; sys.exit(3)", "mine.py, line 3: SystemExit: 3"),
        ("import os; os._exit(3)", "mine.py, line 2: ended its process with status 3"),
        ("import os; os.abort()", "mine.py, line 2: ended its process with SIGABRT"),
        ("print('last word'); import os; os._exit(0)", "with status 0; the last that it printed: last word"),
        ("import ctypes; ctypes.string_at(0)", "mine.py, line 2: ended its process with SIGSEGV"),
        ("return reward(steps)", "mine.py, line 3: RecursionError: maximum recursion depth exceeded"),
        ("bytearray(8 << 30)", "mine.py, line 3: MemoryError"),
        ("print('x' * (1 << 20))", "mine.py, line 2: printed more than 65536 bytes and was killed"),
        ("import nonesuch", "mine.py, line 3: ModuleNotFoundError: No module named 'nonesuch'"),
    ],
)
def test_what_fails_is_told(tmp_path: Path, body: str, said: str) -> None:
    source = f"import numpy as np\ndef reward(steps):\n    x = steps['x']; {body}\ndef helper(x):\n    return 1 // 0\n"
    assert said in refused(tmp_path, source)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("os.write(out, b'\\xff' * 1000)", "wrote into the pipe of its replies"),
        (
            "os.write(out, struct.pack('<QBI', 2, 0, 1 << 31))",
            "kind 0 with 2147483648 bytes, expected reply 2 with 24 bytes",
        ),
        ("os.write(out, struct.pack('<QBI', 2, 2, 4) + b'oops'); os._exit(0)", "no JSON object"),
        ("os.write(out, struct.pack('<QBI', 9, 0, 24) + bytes(24))", "reply 9 of kind 0"),
        ("os.close(out)", "ended its process with status 1"),
        ("os.close(out); [None for _ in iter(int, 1)]", "closed the pipe of its replies and was killed"),
    ],
)
def test_a_forged_reply_is_noticed(tmp_path: Path, body: str, said: str) -> None:
    source = f"import os, struct, sys\ndef reward(steps):\n    out = int(sys.argv[2]); {body}\n    return steps['x']\n"
    assert said in refused(tmp_path, source)


@pytest.mark.slow
def test_an_endless_loop_is_ended_by_the_clock_and_by_the_processor(tmp_path: Path) -> None:
    loop = "def reward(steps):\n    while True: pass\n"
    assert "mine.py, line 1: took more than 1 s and was killed" in refused(tmp_path, loop, RewardLimits(call_s=1.0))
    assert "mine.py, line 1: ended its process with SIGKILL" in refused(
        tmp_path, loop, RewardLimits(call_s=60.0, cpu_s=1)
    )
    assert "took more than 2 s" in refused(tmp_path, "while True: pass\n", RewardLimits(start_s=2.0))


def test_what_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    assert "mine.py, line 2: SyntaxError: '(' was never closed" in refused(tmp_path, "x = 1\ny = (\n")
    assert "mine.py, line 1: ZeroDivisionError" in refused(tmp_path, "1 / 0\n")
    assert "mine.py: defines neither function; define reward(steps)" in refused(tmp_path, "")
    both = "def reward(s): ...\ndef rubric(e): ...\n"
    assert "mine.py: defines reward and rubric; define" in refused(tmp_path, both)
    assert "mine.py, line 1: PermissionError" in refused(tmp_path, "open('/etc/passwd')\n")
    with pytest.raises(UserRewardError, match="No such file or directory; give a Python file"):
        UserReward(tmp_path / "none.py")
    with pytest.raises(UserRewardError, match="more than 1048576 bytes"):
        UserReward(written(tmp_path, "#" * (1 << 20) + "\n"))
    with (
        pytest.raises(UserRewardError, match="at most 67108864; score fewer steps"),
        UserReward(written(tmp_path, "def reward(steps): return steps['x']\n")) as reward,
    ):
        reward.score({"x": np.zeros((1, 1 << 23)), "y": np.zeros((1, 1))})
