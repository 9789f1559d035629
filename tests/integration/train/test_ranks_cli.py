"""`physai train --gpus` and torchrun: what starts ranks, what ends them, and what they leave behind."""

import csv
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.patience import until
from torch._C._distributed_c10d import TCPStore

from physai.sdk.base.errors import DeviceError
from physai.sdk.cli.main import main
from physai.train.collectors.distributed import Ranks, RanksError
from physai.train.runners.checkpoint import read_checkpoint
from physai.train.runners.launch import launch
from physai.train.runners.runner import processors
from physai.train.settings.config import TrainConfig

SETTINGS = ["horizon=6", "epochs=1", "minibatches=2", "hidden=8,8", "num_threads=1", "stop_at_success=none"]
OPTIONS = [part for setting in SETTINGS for part in ("--set", setting)]
NEW = ["train", "cartpole-swingup", "--num-envs", "4", "--device", "cpu", *OPTIONS]
Captured = pytest.CaptureFixture[str]


@contextmanager
def started(
    arguments: Sequence[str], *, program: Sequence[str] = ("physai.sdk.cli",)
) -> Generator[subprocess.Popen[str]]:
    """`python -m physai.sdk.cli` with the arguments, ended with the block."""
    command = [sys.executable, "-m", *program, *arguments]
    pipe = subprocess.PIPE
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str], code: int) -> tuple[str, str]:
    """What the process wrote, once it ended with the code."""
    return all_ended([process], code)[0]


def all_ended(processes: Sequence[subprocess.Popen[str]], code: int) -> list[tuple[str, str]]:
    """What the processes wrote, once all of them ended with the code."""
    with ThreadPoolExecutor(len(processes)) as pool:
        written = list(pool.map(written_in_time, processes))
    if any(process.returncode != code for process in processes):
        pytest.fail(
            "\n\n".join(f"{process.returncode}: {text}" for process, text in zip(processes, written, strict=True))
        )
    return written


def written_in_time(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What the process wrote; one that does not end is aborted, and its Python then writes where it was."""
    try:
        return process.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        for number in family(process.pid):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGABRT)
        return process.communicate()


def family(process: int) -> list[int]:
    """A process's descendants, children after their own, and the process."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [*(member for child in children for member in family(int(child))), process]


def free_port() -> int:
    """A port on which nothing listens, outside the range that the kernel gives to the sockets of other tests."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            port = random.randrange(20_000, 30_000)
            probe.bind(("127.0.0.1", port))
            return port


def logged(folder: Path) -> list[int]:
    path = folder / "progress.csv"
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return [int(float(row["iteration"])) for row in csv.DictReader(file) if row["seconds"]]


def ranks_of(parent: int) -> dict[int, int]:
    """Process of each rank that a process has started."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"PHYSAI_RANKS_PARENT={parent}".encode() in words:
                found |= {int(word[5:]): int(entry.name) for word in words if word.startswith(b"RANK=")}
    return found


def listening(process: int) -> set[str]:
    """Local addresses on which a process accepts TCP connections, as the kernel writes them: 0100007F is 127.0.0.1."""
    folder = Path(f"/proc/{process}")
    sockets = {os.readlink(descriptor) for descriptor in (folder / "fd").iterdir()}
    addresses: set[str] = set()
    for table in ("tcp", "tcp6"):
        for line in (folder / "net" / table).read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and f"socket:[{columns[9]}]" in sockets:
                addresses.add(columns[1].partition(":")[0])
    return addresses


@pytest.mark.slow
class TestRun:
    def test_it_reports_once_and_continues_with_fewer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # Ranks of one computer do not look for the network of another run.
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such-network")
        folder = tmp_path / "run"
        with started([*NEW, "--gpus", "2", "--iterations", "3", "--out", str(folder), "--json"]) as process:
            out, errors = ended(process, 0)
        outcome = json.loads(out)
        assert (outcome["iterations"], outcome["env_steps"], outcome["reason"]) == (
            3,
            3 * 2 * 4 * 6,
            "all iterations done",
        )
        assert "4 worlds in each of 2 processes" in errors
        assert errors.count("next: physai export") == 1
        assert len(list((folder / "tensorboard").iterdir())) == 1
        assert logged(folder) == [1, 2, 3]
        assert main(["train", "--resume", str(folder), "--iterations", "4"]) == 0
        assert logged(folder) == [1, 2, 3, 4]
        assert read_checkpoint(folder)["env_steps"] == 3 * 2 * 4 * 6 + 4 * 6

    def test_ctrl_c_ends_all_with_a_checkpoint(self, tmp_path: Path) -> None:
        """And until then they listen on the loopback address only."""
        folder = tmp_path / "run"
        with started([*NEW, "--gpus", "2", "--iterations", "1000000", "--out", str(folder), "--json"]) as process:
            until(lambda: len(logged(folder)) > 2)
            children = ranks_of(process.pid)
            assert sorted(children) == [0, 1]
            assert {address for child in children.values() for address in listening(child)} == {"0100007F"}
            process.send_signal(signal.SIGINT)
            out, errors = ended(process, 130)
        assert json.loads(out)["reason"] == "stopped by a signal; continue with --resume"
        assert "Traceback" not in errors
        assert read_checkpoint(folder)["iteration"] == logged(folder)[-1]
        assert not any(Path(f"/proc/{child}").exists() for child in children.values())

    @pytest.mark.parametrize("victim", [0, 1])
    def test_a_rank_that_is_killed_ends_all_with_one_message(self, victim: int, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        arguments = ["--gpus", "2", "--iterations", "1000000", "--set", "checkpoint_every_s=0", "--out", str(folder)]
        with started([*NEW, *arguments]) as process:
            until(lambda: len(logged(folder)) > 2)
            children = ranks_of(process.pid)
            os.kill(children[victim], signal.SIGKILL)
            _, errors = ended(process, 2)
        assert [line for line in errors.splitlines() if "error" in line.lower()] == [
            f"physai: error: rank {victim} was killed by SIGKILL, so the other ranks were ended; "
            f"continue from the last checkpoint with --resume {folder}"
        ]
        assert "Traceback" not in errors
        assert not any(Path(f"/proc/{child}").exists() for child in children.values())
        reached = read_checkpoint(folder)["iteration"]
        assert reached >= logged(folder)[-1] - 1
        assert main(["train", "--resume", str(folder), "--iterations", str(reached + 1)]) == 0

    def test_ranks_end_with_the_process_that_started_them(self, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        with started([*NEW, "--gpus", "2", "--iterations", "1000000", "--out", str(folder)]) as process:
            until(lambda: len(logged(folder)) > 0)
            children = ranks_of(process.pid)
            process.kill()
            until(lambda: not any(Path(f"/proc/{child}").exists() for child in children.values()))
        assert read_checkpoint(folder)["iteration"] >= 0

    def test_one_judges_and_all_stop(self, tmp_path: Path) -> None:
        """A threshold that even an untrained policy reaches."""
        easy = [part for setting in ("stop_at_success=0", "eval_min_success=0") for part in ("--set", setting)]
        with started([*NEW, *easy, "--gpus", "2", "--out", str(tmp_path / "run"), "--json"]) as process:
            outcome = json.loads(ended(process, 0)[0])
        assert (outcome["iterations"], outcome["reason"]) == (1, "0.0% success without exploration")
        assert outcome["success"] == 0.0

    def test_a_rank_that_fails_is_named_with_its_last_words(self, tmp_path: Path) -> None:
        """The other one would wait for ever."""
        program = (
            "import os, sys, time; "
            "time.sleep(600) if os.environ['RANK'] == '0' else sys.exit('noise\\nphysai: error: no memory')"
        )
        message = (
            r"^rank 1 ended with exit code 1 \(physai: error: no memory\), so the other ranks were ended; nothing "
        )
        with pytest.raises(RanksError, match=message):
            launch([sys.executable, "-c", program], 2, run=tmp_path)

    def test_what_the_first_rank_refuses_is_said_once(self, tmp_path: Path) -> None:
        missing = str(tmp_path / "missing.xml")
        with started([*NEW, "--gpus", "2", "--robot", missing, "--out", str(tmp_path / "run")]) as process:
            _, errors = ended(process, 2)
        assert errors.count("physai: error: ") == 1
        assert missing in errors
        assert "Traceback" not in errors

    def test_two_computers(self, tmp_path: Path) -> None:
        """Two torchrun, as if on two computers, with one rank each."""
        folder = tmp_path / "run"
        # The store where they meet outlives both: the agent that hosted it would end while the other still asks it.
        store = TCPStore("127.0.0.1", free_port(), is_master=True, wait_for_workers=False)
        node = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "test"]
        node += ["--rdzv-endpoint", f"127.0.0.1:{store.port}", "--rdzv-conf", "is_host=false", "-m", "physai.sdk.cli"]
        command = [*node, *NEW, "--iterations", "3", "--out", str(folder), "--json"]
        program = ("torch.distributed.run",)
        with started(command, program=program) as first, started(command, program=program) as second:
            written = all_ended([first, second], 0)
        (outcome,) = (json.loads(printed) for printed, _ in written if printed)
        assert outcome["env_steps"] == 3 * 2 * 4 * 6
        assert len(read_checkpoint(folder)["other_ranks"]) == 1


class TestRefused:
    def refused(self, arguments: Sequence[str], capsys: Captured) -> str:
        assert main(list(arguments)) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err

    @pytest.mark.parametrize("count", ["0", "-1", "65", "1000000000000"])
    def test_a_number_of_ranks_out_of_range(self, count: str, capsys: Captured) -> None:
        assert f"--gpus must lie in [1, 64], got {count}" in self.refused([*NEW, "--gpus", count], capsys)

    def test_more_gpus_than_there_are(self, tmp_path: Path, capsys: Captured) -> None:
        arguments = ["train", "cartpole-swingup", "--gpus", "64", "--out", str(tmp_path / "run")]
        message = self.refused(arguments, capsys)
        assert "--gpus 64, but torch finds " in message
        assert "--device cpu" in message
        assert not (tmp_path / "run").exists()

    def test_a_wrong_setting_starts_nothing(self, tmp_path: Path, capsys: Captured) -> None:
        message = self.refused([*NEW, "--gpus", "2", "--set", "shards=3", "--out", str(tmp_path / "run")], capsys)
        assert "--num-envs 4 cannot be divided into 3 equal shards" in message

    @pytest.mark.parametrize(
        ("variables", "expected"),
        [
            ({"RANK": "0"}, "RANK are set, but not WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT"),
            ({"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "RANK 2 must be less than WORLD_SIZE 2"),
            (
                {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "-1"},
                "LOCAL_RANK must be a number from 0 to 65536, got '-1'",
            ),
            ({"RANK": "1", "WORLD_SIZE": "99999", "LOCAL_RANK": "1"}, "WORLD_SIZE must be a number from 0 to 65536"),
            ({"RANK": "٣", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}, "RANK must be a number"),
            (
                {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_PORT": "99999"},
                "MASTER_PORT must be a number from 0 to 65535, got '99999'",
            ),
            (
                {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "PHYSAI_RANKS_PARENT": "abc"},
                "PHYSAI_RANKS_PARENT must be a number from 0 to 4194304, got 'abc'",
            ),
            (
                {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "1"},
                "LOCAL_RANK 1 must be less than LOCAL_WORLD_SIZE 1",
            ),
        ],
    )
    def test_an_environment_that_does_not_fit(
        self, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
    ) -> None:
        if len(variables) > 1:
            variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", **variables}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert expected in self.refused(NEW, capsys)

    def test_another_number_than_torchrun_started(self, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
        variables = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
        for name, value in {**variables, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
            monkeypatch.setenv(name, value)
        message = self.refused([*NEW, "--gpus", "3"], capsys)
        assert "--gpus 3, but 2 ranks were started on this computer" in message

    def test_a_rank_without_a_gpu_of_its_own(self) -> None:
        with pytest.raises(DeviceError, match=r"1000 ranks on this computer need as many GPUs, torch finds \d+; "):
            Ranks(999, 1000, 999).device("cuda:0")


def test_ranks_of_a_computer_share_its_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = processors(TrainConfig())
    variables = {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    for name, value in {**variables, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert processors(TrainConfig()) == max(1, alone // 2)


def test_one_process_is_no_rank(tmp_path: Path) -> None:
    """`--gpus 1` and torchrun with one process learn as `physai train` does."""
    for name, more in (("plain", []), ("one", ["--gpus", "1"])):
        assert main([*NEW, "--iterations", "2", "--out", str(tmp_path / name), *more]) == 0
    plain, one = (read_checkpoint(tmp_path / name)["graph"] for name in ("plain", "one"))
    assert all(bool((plain[key] == one[key]).all()) for key in plain)
