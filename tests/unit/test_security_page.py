"""Every test that a page of docs names exists; every row of docs/explanation/security.md names one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(
    r"`((?:[\w/]+\.py)?(?:::\w+)?)`", (ROOT / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
)


def rows() -> list[tuple[str, str]]:
    """File and test of each name; one without a file is of the file before it."""
    found: list[tuple[str, str]] = []
    for name in filter(None, NAMED):
        file, _, test = name.partition("::")
        found.append((file or found[-1][0], test))
    return found


def test_the_page_names_tests() -> None:
    assert len(rows()) > 30


@pytest.mark.parametrize(("file", "test"), rows())
def test_the_test_is_there(file: str, test: str) -> None:
    folders = (ROOT,) if file.startswith("tests/") else (ROOT / "tests" / "unit", ROOT / "tests" / "integration")
    path = next(folder / file for folder in folders if (folder / file).is_file())
    text = path.read_text(encoding="utf-8")
    assert "def test_" in text or "TestCase" in text
    assert not test or re.search(rf"^(?:def|class) {test}\b|^{test} = ", text, re.MULTILINE)


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda page: page.stem)
def test_tests_named_on_a_page_exist(page: Path) -> None:
    for file, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text(encoding="utf-8")):
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not test or re.search(rf"^(?:def|class) {test}\b", text, re.MULTILINE), f"{file}::{test}"
