"""`physai completion`: the shells themselves complete what the parsers accept."""

import shutil
import subprocess
from pathlib import Path

import pytest

from physai.sdk.cli.main import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "physai.bash"
    from contextlib import redirect_stdout

    with path.open("w") as file, redirect_stdout(file):
        assert main(["completion", "bash"]) == 0
    return path


def completed(script: Path, *words: str) -> list[str]:
    program = '. "$1"; shift; COMP_WORDS=(physai "$@"); COMP_CWORD=$#; _physai; printf "%s\\n" "${COMPREPLY[@]}"'
    command = ["bash", "--norc", "-uc", program, "bash", str(script), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_verbs_options_and_choices(script: Path) -> None:
    assert completed(script, "tr") == ["train"]
    assert {"train", "runs", "new", "sim", "robot"} <= set(completed(script, ""))
    assert completed(script, "sim", "val") == ["validate"]
    assert completed(script, "train", "--init") == ["--init-from"]
    assert completed(script, "train", "--engine", "w") == ["warp"]
    assert completed(script, "sim", "validate", "--twi") == ["--twin"]
    assert completed(script, "runs", "compare", "--j") == ["--json"]
    assert completed(script, "train", "no-such-word") == []


def test_a_file_named_like_a_verb_changes_nothing(script: Path) -> None:
    assert completed(script, "train", "list", "--init") == ["--init-from"]


def test_the_scripts_of_other_shells(capsys: Captured) -> None:
    assert main(["completion", "zsh"]) == 0
    assert "bashcompinit" in capsys.readouterr().out
    assert main(["completion", "fish"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "complete -c physai -n '__fish_use_subcommand' -f -a train" in lines
    assert "complete -c physai -n '__fish_seen_subcommand_from train' -l engine -x -a 'mujoco warp'" in lines
    assert main(["completion", "tcsh"]) == 2


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_reads_its_script(tmp_path: Path, capsys: Captured) -> None:
    assert main(["completion", "fish"]) == 0
    (tmp_path / "physai.fish").write_text(capsys.readouterr().out)
    subprocess.run(["fish", "--no-execute", str(tmp_path / "physai.fish")], check=True, timeout=60)
