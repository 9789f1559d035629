"""The commands in README and docs run, and those that cannot run here name verbs and options that exist.

A fenced block marked `bash` runs in the page's temporary folder, in order. An HTML comment before it says otherwise:
`<!-- test: skip -->` needs a robot, root or the network; `<!-- test: slow -->` runs with `pytest -m exhaustive`, and
those of the tutorial about a foreign arm with every other slow test. A block with a title (```xml title="lever.xml"```)
is written to that file first.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

import pytest
from tests.support.foreign_arm import write_foreign_arm

import physai
from physai.sdk.base.user_cache import user_cache
from physai.sdk.cli.grammar import choose, names
from physai.sdk.cli.parsing.parser import Parser

ROOT = Path(__file__).parents[2]
ROAD = ROOT / "docs" / "tutorials" / "somebody-elses-arm.md"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
TIMEOUT_S = 600.0
BUSY = re.compile(r"^latency +FAIL|ticks take up to", re.MULTILINE)
"""What the latency gate and the robot's self-test print on a computer that misses deadlines, as they should."""
SEPARATORS = {"&&", "||", "|", ";"}

FENCE = re.compile(
    r"^(?:<!-- test: (?P<mark>skip|slow) -->\n)?"
    r"```(?P<language>\w*)(?: title=\"(?P<title>[\w.-]+)\")?\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    line: int
    language: str
    title: str
    mark: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            line=text[: found.start()].count("\n") + 1,
            language=found["language"],
            title=found["title"] or "",
            mark=found["mark"] or "",
            text=found["text"],
        )
        for found in FENCE.finditer(text)
    ]


def commands(page: Path) -> Iterator[tuple[int, list[str]]]:
    """Line and words of every `physai` command line in a block."""
    for block in blocks(page):
        if block.language != "bash":
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
            lexer.whitespace_split = True
            command: list[str] = []
            for word in [*lexer, ";"]:
                if word not in SEPARATORS:
                    command.append(word)
                    continue
                while command[:1] == ["sudo"]:
                    command.pop(0)
                if command[:1] == ["physai"]:
                    yield block.line, command[1:]
                command = []


def mentions(page: Path) -> Iterator[list[str]]:
    """Words of every `physai ...` in the prose, which may lack arguments or hold placeholders."""
    for span in re.findall(r"`physai ([^`]+)`", FENCE.sub("", page.read_text(encoding="utf-8"))):
        yield span.split()


@cache
def parser_of(verb: str) -> Parser:
    return choose([verb]).parser()


def children(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Parsers of the actions below a parser, by name."""
    for action in parser._actions:  # argparse has no public way to list them
        choices: object = action.choices
        if isinstance(choices, Mapping):
            return cast("Mapping[str, argparse.ArgumentParser]", choices)
    return {}


def check_mention(words: list[str]) -> None:
    verb, *rest = words
    if verb.isupper() or verb.startswith("-"):
        return
    assert verb in names(), f"no verb {verb}"
    parsers: list[argparse.ArgumentParser] = [parser_of(verb)]
    while rest and (below := children(parsers[0])) and re.fullmatch(r"[a-z|-]+", rest[0]) and rest[0][0] != "-":
        for name in rest[0].split("|"):
            assert name in below, f"physai {' '.join(words)}: no action {name}"
        parsers = [below[name] for name in rest.pop(0).split("|")]
    known = {option for parser in parsers for option in parser._option_string_actions}
    for word in rest:
        for option in re.findall(r"^\[?(--?[a-z][a-z-]*)", word):
            assert option in known, f"physai {' '.join(words)}: no option {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_and_options_exist(page: Path) -> None:
    for line, words in commands(page):
        assert words[0] in names() or words[0].startswith("-"), f"{page}:{line}: {words}"
        if not words[0].startswith("-") and not {"-h", "--help"} & set(words):
            choose(words).parse()
    for words in mentions(page):
        check_mention(words)


SMALLER = {
    r"--time-budget-s \d+": "--iterations 60",
    r"(physai train reach .*)--iterations 60": r"\1--iterations 15",
    r"--duration-s 20": "--duration-s 3",
    r" --budget-steps \d+": "",
    r"(physai sim calibrate .*)": r"\1 --budget-steps 500000",
    r"(physai eval .*)": r"\1 --episodes 32",
    r"(physai play .*--video .*)": r"\1 --episodes 1 --duration-s 2",
}
"""What a tutorial does in a tenth of the time."""
NO_PASS = re.compile(r"^(FAIL|INCONCLUSIVE): this policy", re.MULTILINE)


def run_page(page: Path, folder: Path, *, slow: bool, smaller: bool = False) -> str:
    """Runs a page's blocks in a folder; returns what they printed.

    With `smaller`, it ends with a verdict that is no PASS: a policy that has learned so shortly may get one, and what
    follows is about one that may be flashed.
    """
    said = ""
    physai_command = Path(sys.executable).with_name("physai")
    if not physai_command.exists():
        pytest.skip(f"no {physai_command}: install the distribution")
    environment = {
        **os.environ,
        "PATH": f"{physai_command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(str(Path(path).resolve().parent) for path in physai.__path__),
        "HOME": str(folder),
        # Kernels that other tests compiled for this machine.
        "PHYSAI_CACHE": str(user_cache("warp").parent),
    }
    for block in blocks(page):
        if block.title:
            (folder / block.title).write_text(block.text, encoding="utf-8")
        if block.language != "bash" or block.mark == "skip" or (block.mark == "slow" and not slow):
            continue
        text = block.text
        for pattern, replacement in SMALLER.items() if smaller else ():
            text = re.sub(pattern, replacement, text)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if BUSY.search(done.stdout + done.stderr):
            pytest.skip("this computer is too busy for the deadlines of the contract")
        # 1 is an answer: a verdict that is no PASS, a robot that ended in HOLD because this computer was busy.
        report = f"{page}:{block.line}:\n{block.text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert "Traceback" not in done.stderr, report
        if smaller and NO_PASS.search(done.stdout):
            return said + done.stdout
        assert done.returncode in (0, 1), report
        said += done.stdout + done.stderr
    return said


def runnable(*, slow: bool) -> list[Path]:
    marks = {"", "slow"} if slow else {""}
    return [page for page in PAGES if any(block.language == "bash" and block.mark in marks for block in blocks(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", runnable(slow=False), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_runs(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first-policy", "somebody-elses-arm", "your-own-robot"])
def test_a_tutorial_runs_at_a_smaller_size(name: str, tmp_path: Path) -> None:
    """Its full walk is `test_a_tutorial_runs_to_its_end`."""
    if name == ROAD.stem:
        write_foreign_arm(tmp_path)
    said = run_page(ROAD.with_name(f"{name}.md"), tmp_path, slow=True, smaller=True)
    assert re.search(r"^(PASS|FAIL|INCONCLUSIVE): this policy", said, re.MULTILINE), said[-6000:]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "page", sorted({*ROOT.glob("docs/tutorials/*.md")} - {ROAD}), ids=lambda page: page.relative_to(ROOT).stem
)
def test_a_tutorial_runs_to_its_end(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path, slow=True)


@pytest.mark.exhaustive
def test_an_arm_from_a_urdf_with_meshes_goes_the_whole_road(tmp_path: Path) -> None:
    """From a file that nobody here wrote to a signed policy that drives: every command of the page, word by word."""
    write_foreign_arm(tmp_path)
    said = run_page(ROAD, tmp_path, slow=True)
    for step in (
        "stable: arm holds still",
        "credible",
        "PASS: this policy may be flashed",
        "now on trial",
        " ticks, ",
    ):
        assert step in said, f"{step!r} is missing in:\n{said[-6000:]}"
    assert (tmp_path / "arm.mp4").read_bytes()[4:8] == b"ftyp"


def test_every_block_of_commands_says_that_it_is_one() -> None:
    for page in PAGES:
        for block in blocks(page):
            assert block.language or not re.search(r"^(sudo )?(physai|make|pip|ros2) ", block.text, re.MULTILINE), (
                f"{page}:{block.line}: mark the block as bash"
            )
