"""The `physai` command, run as a process of its own, with verbs from a package made for the test."""

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fixtures.sample import sample_contract

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, styled, table, wants_colour
from physai.sdk.cli.main import main
from physai.sdk.cli.parsing.parser import Parser
from physai.sdk.contract.io import parse_contract, save_contract
from physai.sdk.contract.policy_contract import PolicyContract

START = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"

VERB = """
import argparse
from physai.sdk.cli.command import CliCommand

def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--num-envs", type=int, default=1)
    parser.add_argument("--robot", choices=["go2", "ur10e"], default="go2")

def run(arguments: argparse.Namespace) -> int:
    {body}

command = CliCommand(summary="{summary}", add_arguments=add_arguments, run=run)
"""


class Sandbox:
    """A folder on the Python path with a distribution that contributes verbs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entries: list[str] = []

    def add(self, verb: str, source: str, *, module: str | None = None) -> None:
        """Writes the module of a verb and its entry point."""
        module = module or f"verbs_{verb}"
        path = self.folder / (module.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        self._entries.append(f"{verb} = {module}:command")
        info = self.folder / "verbs-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: verbs\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("\n".join(["[physai.commands]", *self._entries]) + "\n")

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs `physai` with the arguments."""
        path = os.pathsep.join([str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.run(
            [sys.executable, "-c", START, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path, **variables},
            timeout=60,
        )


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


class TestVerbs:
    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
    def test_a_full_disk_is_one_line(self, sandbox: Sandbox) -> None:
        body = "open('/dev/full', 'w', buffering=1).write('lost\\n')"
        sandbox.add("fill", VERB.format(summary="fills", body=body))
        result = sandbox.run("fill")
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr == "physai: error: No space left on device\n"

    def test_too_little_memory_is_one_line(self, sandbox: Sandbox) -> None:
        sandbox.add("fill", VERB.format(summary="fills", body="bytearray(2**62)"))
        result = sandbox.run("fill")
        assert (result.returncode, result.stderr) == (2, "physai: error: not enough memory; ask for less at once\n")

    def test_a_file_that_cannot_be_made_is_named(self, sandbox: Sandbox) -> None:
        sandbox.add("make", VERB.format(summary="makes", body="open('/nowhere/file', 'w')"))
        assert sandbox.run("make").stderr == "physai: error: /nowhere/file: No such file or directory\n"

    def test_a_verb_runs_and_its_code_is_the_exit_code(self, sandbox: Sandbox) -> None:
        sandbox.add("count", VERB.format(summary="counts", body="print(arguments.num_envs); return 7"))
        result = sandbox.run("count", "--num-envs", "3")
        assert (result.returncode, result.stdout, result.stderr) == (7, "3\n", "")

    def test_help_lists_every_verb_and_names_what_is_missing(self, sandbox: Sandbox) -> None:
        (sandbox.folder / "physai" / "train").mkdir(parents=True)
        (sandbox.folder / "physai" / "train" / "__init__.py").write_text("")
        sandbox.add("count", VERB.format(summary="counts to three", body="return 0"))
        sandbox.add("fly", "import no_such_library\n", module="physai.train.fly")
        sandbox.add("swim", "import no_such_library\n")
        sandbox.add("crash", "1 / 0\n")
        sandbox.add("number", "command = 3\n")
        result = sandbox.run("--help")
        assert (result.returncode, result.stderr) == (0, "")
        lines = dict(line.strip().split(maxsplit=1) for line in result.stdout.splitlines() if line.startswith("  "))
        assert lines["count"] == "counts to three"
        missing = "needs no_such_library, which is not installed:"
        assert lines["fly"] == f"unavailable: fly {missing} pip install 'physai-sdk[train]'"
        assert lines["swim"] == f"unavailable: swim {missing} install what provides no_such_library"
        assert lines["crash"] == "unavailable: crash cannot be loaded: ZeroDivisionError: division by zero"
        assert lines["number"] == "unavailable: number cannot be loaded: verbs_number:command is int, not CliCommand"
        assert sandbox.run().stdout == result.stdout

    def test_a_verb_that_cannot_be_loaded_is_one_line(self, sandbox: Sandbox) -> None:
        sandbox.add("crash", "1 / 0\n")
        result = sandbox.run("crash")
        expected = "physai: error: crash cannot be loaded: ZeroDivisionError: division by zero\n"
        assert (result.returncode, result.stdout, result.stderr) == (2, "", expected)

    def test_a_verb_that_ends_the_process_is_named(self, sandbox: Sandbox) -> None:
        sandbox.add("leave", "import sys; sys.exit(0)\n")
        sandbox.add("quit", VERB.format(summary="quits", body="raise SystemExit(0)"))
        result = sandbox.run("leave")
        assert (result.returncode, result.stderr) == (2, "physai: error: leave cannot be loaded: SystemExit: 0\n")
        expected = "quit (verbs_quit:command) ended the process: SystemExit(0); a verb returns its exit code"
        result = sandbox.run("quit")
        assert (result.returncode, result.stderr) == (2, f"physai: error: {expected}\n")
        assert "unavailable: leave cannot be loaded" in sandbox.run("--help").stdout

    def test_a_verb_of_a_noun_that_cannot_be_loaded_harms_no_other(self, sandbox: Sandbox) -> None:
        sandbox.add("fruit.peel", VERB.format(summary="peels", body="return 7"), module="verbs_peel")
        sandbox.add("fruit.crash", "1 / 0\n", module="verbs_crash")
        assert sandbox.run("fruit", "peel").returncode == 7
        listed = sandbox.run("fruit", "--help")
        assert listed.returncode == 0
        words = " ".join(listed.stdout.split())
        assert "peel peels" in words
        assert "crash unavailable: fruit.crash cannot be loaded: ZeroDivisionError" in words
        refused = sandbox.run("fruit", "crash")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr == "physai: error: fruit.crash cannot be loaded: ZeroDivisionError: division by zero\n"
        misspelt = sandbox.run("fruit", "peal")
        assert misspelt.stderr.startswith("physai: error: no verb named 'peal'; did you mean peel?")

    def test_a_library_missing_while_a_verb_runs_is_one_line(self, sandbox: Sandbox) -> None:
        sandbox.add("count", VERB.format(summary="", body="import no_such_library.inner; return 0"))
        result = sandbox.run("count")
        assert result.returncode == 2
        assert result.stderr.startswith("physai: error: count needs no_such_library, which is not installed: ")
        assert len(result.stderr.splitlines()) == 1

    def test_a_missing_module_of_our_own_is_a_bug(self, sandbox: Sandbox) -> None:
        sandbox.add("count", VERB.format(summary="", body="import physai.sdk.no_such_module; return 0"))
        result = sandbox.run("count")
        assert result.returncode == 1
        assert "Traceback" in result.stderr

    def test_bad_input_is_one_line_and_two(self, sandbox: Sandbox) -> None:
        body = "from physai.sdk.base.errors import TaskError; raise TaskError('mass -1 kg\\x1b[2J\\nmust be positive')"
        sandbox.add("count", VERB.format(summary="", body=body))
        result = sandbox.run("count")
        assert result.returncode == 2
        assert result.stderr == "physai: error: mass -1 kg\\x1b[2J\nmust be positive\n"

    def test_an_interrupt_is_130(self, sandbox: Sandbox) -> None:
        sandbox.add("count", VERB.format(summary="", body="raise KeyboardInterrupt"))
        result = sandbox.run("count")
        assert (result.returncode, result.stderr) == (128 + signal.SIGINT, "")
        # Another one while the interpreter ends.
        again = (
            "import atexit, os, signal; atexit.register(os.kill, os.getpid(), signal.SIGINT); raise KeyboardInterrupt"
        )
        sandbox.add("twice", VERB.format(summary="", body=again))
        result = sandbox.run("twice")
        assert (result.returncode, result.stderr) == (128 + signal.SIGINT, "")

    def test_a_reader_that_left_is_quiet(self, sandbox: Sandbox) -> None:
        sandbox.add("count", VERB.format(summary="", body="print('x' * 1_000_000); return 0"))
        path = {"PYTHONPATH": str(sandbox.folder)}
        process = subprocess.Popen(
            [sys.executable, "-c", START, "count"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **path},
        )
        assert process.stdout is not None
        process.stdout.close()
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (128 + signal.SIGPIPE, b"")

    def test_a_terminal_without_the_unit_does_not_end_the_run(self, sandbox: Sandbox) -> None:
        sandbox.add("count", VERB.format(summary="", body="print('N·m'); return 0"))
        result = sandbox.run("count", PYTHONIOENCODING="ascii")
        assert (result.returncode, result.stdout) == (0, "N\\xb7m\n")

    def test_help_imports_nothing_heavy(self, sandbox: Sandbox) -> None:
        code = (
            "import sys; from physai.sdk.cli.main import main; main(['--help']);"
            "print(sorted({'torch', 'mujoco', 'numpy', 'pydantic', 'onnx', 'onnxruntime', 'matplotlib'}"
            " & set(sys.modules)))"
        )
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert result.stdout.splitlines()[-1] == "[]"


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["contrat"], "no verb named 'contrat'; did you mean contract"),
            (["contract", "shwo", "x"], "no verb named 'shwo'; did you mean show? (see `physai contract --help`)"),
            (["contract", "show", "x", "--jsno"], "no option --jsno; did you mean --json?"),
            (["contract", "show", "x", "--jso"], "no option --jso; did you mean --json?"),
            (["contract", "show", "x", "--jsno=1"], "no option --jsno; did you mean --json?"),
            (["contract", "show", "x", "-q"], "no option -q (see"),
            (["contract", "show", "x", "y"], "unexpected argument 'y'"),
            (["logs", "check", "a.csv", "--columns", "c", "b.csv"], "c: no such column map"),
            (["flash", "robot", "--wait", "b"], "b: cannot be read: No such file or directory"),
            (
                ["robots", "show", "--render", "go2"],
                "the following arguments are required: MODEL; --render took 'go2', end its values with `--`",
            ),
            (["contract"], "the following arguments are required: VERB"),
            (["--verison"], "no option --verison; did you mean --version?"),
            ([""], "no verb named ''"),
        ],
    )
    def test_a_slip_is_named(self, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
        assert main(arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(f"physai: error: {message}")
        assert captured.err.count("\n") == 1

    def test_values_are_checked(self, sandbox: Sandbox) -> None:
        sandbox.add("count", VERB.format(summary="", body="return 0"))
        for arguments, message in [
            (("--num-envs", "many"), "argument --num-envs: expected a whole number of at most 64 bits, got 'many'"),
            (("--num-envs",), "argument --num-envs: expected one argument"),
            (("--robot", "go3"), "no robot named 'go3'; did you mean go2?"),
            (("--num-env", "3"), "no option --num-env; did you mean --num-envs?"),
        ]:
            result = sandbox.run("count", *arguments)
            assert result.returncode == 2
            assert result.stderr == f"physai: error: {message} (see `physai count --help`)\n"

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--version"]) == 0
        assert capsys.readouterr().out == f"physai {version('physai-sdk')}\n"

    def test_help_of_a_verb(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["contract", "diff", "--help"]) == 0
        assert "usage: physai contract diff" in capsys.readouterr().out

    def test_a_parser_raises_instead_of_exiting(self) -> None:
        with pytest.raises(PhysaiError, match="no option --x"):
            Parser(prog="p").parse(["--x"])


class TestText:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    def test_no_color_is_respected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        assert styled("x", "bold", self.Terminal()) == "\x1b[1mx\x1b[0m"
        assert styled("x", "bold", StringIO()) == "x"
        monkeypatch.setenv("NO_COLOR", "")
        assert wants_colour(self.Terminal())
        monkeypatch.setenv("NO_COLOR", "1")
        assert not wants_colour(self.Terminal())
        monkeypatch.delenv("NO_COLOR")
        monkeypatch.setenv("TERM", "dumb")
        assert not wants_colour(self.Terminal())

    def test_control_characters_are_escaped(self) -> None:
        assert printable("a\x1b[31m\u202eb\n·\x00") == "a\\x1b[31m\\u202eb\n·\\x00"

    def test_columns_are_aligned(self) -> None:
        assert table(("a", "long"), [("wide", "x"), ("", "y")]) == "  a     long\n  wide  x\n        y"
        assert table(("a",), []) == ""


class TestContract:
    @pytest.fixture
    def file(self, tmp_path: Path, full_contract: PolicyContract) -> Path:
        save_contract(full_contract, tmp_path / "contract.json")
        return tmp_path / "contract.json"

    @pytest.fixture
    def other(self, tmp_path: Path, full_document: dict[str, Any]) -> Path:
        full_document["robot"]["joints"][0]["stiffness"] = 80.0
        save_contract(parse_contract(json.dumps(full_document), source="other"), tmp_path / "other.json")
        return tmp_path / "other.json"

    def test_show(self, capsys: pytest.CaptureFixture[str], file: Path, full_contract: PolicyContract) -> None:
        assert main(["contract", "show", str(file.parent)]) == 0
        lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
        for expected in (
            f"fingerprint {full_contract.fingerprint}",
            "robot arm, floating base",
            "0 shoulder revolute [-2, 2] 3 50 100 5 0.25",
            "3 passive continuous - - 0 0 0 0",
            "imu_ang_vel_b 3 rad/s b",
            "speed 2 m/s b [-1, -0.5] [1, 0.5]",
            "observation (40)",
            "3:12 gyro sensor imu_ang_vel_b 0.25 0 10 3",
            "12:18 angles sin_cos of elbow, shoulder, passive 1 0 - 1",
            "25:31 error pose_error pose along ee 1 0 - 1",
            "1 shoulder joint_pos 0.25 0.25 [-1, 1]",
            "2 slide joint_effort_incremental 2 - [-30, 30]",
            "control period 0.02 s (50 Hz) = 4 physics steps of 0.005 s",
            "passive - - 0 - - -",
            "last command repeated at most 3 periods",
            "format 1",
            "lacks (6)",
        ):
            assert expected in lines

    def test_show_what_format_2_has(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, newest_contract: PolicyContract
    ) -> None:
        save_contract(newest_contract, tmp_path / "contract.json")
        assert main(["contract", "show", str(tmp_path)]) == 0
        lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
        for expected in (
            "format 2",
            "shoulder [-1.5, 1.5] 2 40 12 0.2 0.05",
            "frozen after 5 unchanged samples",
            "joint_pos plausible from [-2.5, -2.5, -0.1, -] to [2.5, 2.5, 0.6, -]",
            "lacks (3)",
            "Joint passive: no velocity_limit, so no measured speed counts as too fast.",
        ):
            assert expected in lines

    def test_show_the_age_of_the_word(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        save_contract(sample_contract(safety={"status_max_age_s": 3600.0}), tmp_path / "contract.json")
        assert main(["contract", "show", str(tmp_path)]) == 0
        assert "  runs with a validator's word that is at most 3600 s old\n" in capsys.readouterr().out

    def test_show_as_json(self, capsys: pytest.CaptureFixture[str], file: Path, full_contract: PolicyContract) -> None:
        assert main(["contract", "show", "--json", str(file)]) == 0
        record = json.loads(capsys.readouterr().out)
        assert record["fingerprint"] == full_contract.fingerprint
        assert record["observation_size"] == 40
        assert record["observation_slices"]["gyro"] == [3, 12]
        assert len(record["lacks"]) == 6
        assert parse_contract(json.dumps(record["contract"]), source="shown") == full_contract

    def test_diff_of_one(self, capsys: pytest.CaptureFixture[str], file: Path, full_contract: PolicyContract) -> None:
        assert main(["contract", "diff", str(file), str(file.parent)]) == 0
        assert capsys.readouterr().out == f"same contract, fingerprint {full_contract.fingerprint}\n"

    def test_diff_of_two(self, capsys: pytest.CaptureFixture[str], file: Path, other: Path) -> None:
        assert main(["contract", "diff", str(file), str(other)]) == 1
        expected = f"  robot.joints[shoulder].stiffness: 100.0 in {file}, 80.0 in {other}"
        assert capsys.readouterr().out.splitlines()[1:] == [expected]

    def test_diff_as_json(self, capsys: pytest.CaptureFixture[str], file: Path, other: Path) -> None:
        assert main(["contract", "diff", "--json", str(file), str(other)]) == 1
        record = json.loads(capsys.readouterr().out)
        assert record["same"] is False
        assert record["differences"] == [
            {"path": "robot.joints[shoulder].stiffness", "kind": "changed", "left": 100.0, "right": 80.0}
        ]

    def test_schema(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["contract", "schema"]) == 0
        assert json.loads(capsys.readouterr().out)["$id"] == "urn:physai:contract:3"

    def test_a_missing_file_is_one_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["contract", "show", "/no/such/file.json"]) == 2
        expected = "physai: error: /no/such/file.json: cannot be read: No such file or directory\n"
        assert capsys.readouterr().err == expected


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "x", "", "9" * 5000])
def test_numbers_that_are_none_are_refused(text: str) -> None:
    parser = Parser(prog="p")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--count", type=int)
    with pytest.raises(PhysaiError, match="argument --rate: expected a finite number, got"):
        parser.parse([f"--rate={text}"])
    with pytest.raises(
        PhysaiError, match="argument --count: expected a whole number of at most 64 bits, got"
    ) as caught:
        parser.parse([f"--count={text}"])
    assert len(str(caught.value)) < 160
    assert parser.parse(["--rate=-1e3", "--count=-9223372036854775807"]).rate == -1000.0


def test_an_argument_with_a_nul_byte_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contract", "show", "a\0b"]) == 2
    assert "an argument contains a NUL byte: 'a\\x00b'" in capsys.readouterr().err


def test_an_unknown_opengl_back_end_is_refused_in_a_line() -> None:
    environment = {**os.environ, "MUJOCO_GL": "nonsense"}
    command = [sys.executable, "-c", START, "tasks"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "MUJOCO_GL: nonsense; use egl, osmesa or glfw, or unset it" in result.stderr
