"""The docs' menu has each page once, and each command is on one page; guides and explanations are short."""

import argparse
import importlib.util
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from physai.sdk.cli.grammar import SHORT_CUTS, names

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SETTINGS: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
BOUNDS: dict[str, Any] = tomllib.loads((ROOT / ".ci" / "house.toml").read_text(encoding="utf-8"))["docs"]
LONGER: dict[str, int] = BOUNDS["longer"]
STAGES = ["Robot", "Task", "Train", "Calibrate", "Validate", "Deploy", "Operate", "Scale"]
PUBLIC = sorted(
    path.parent.name
    for path in ROOT.glob("*/physai/*/__init__.py")
    if re.search(r"^__all__ = ", path.read_text(encoding="utf-8"), re.MULTILINE)
)
"""Packages that export names."""


def menu_pages(entry: Any) -> Iterator[str]:
    """Pages of a part of the menu, in order."""
    if isinstance(entry, str):
        yield entry
    else:
        for child in entry if isinstance(entry, list) else entry.values():  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            yield from menu_pages(child)


def bounded_pages() -> list[tuple[str, int]]:
    """Path of each page whose words are bounded, and the bound."""
    return [
        (path.relative_to(DOCS).as_posix(), BOUNDS["most_words"][folder])
        for folder in ("how-to", "explanation")
        for path in sorted((DOCS / folder).glob("**/*.md"))
    ]


def words(page: str) -> int:
    return len((DOCS / page).read_text(encoding="utf-8").split())


def test_each_page_is_in_the_menu_once() -> None:
    excluded = set(SETTINGS["exclude_docs"].split())
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - excluded
    found = Counter(menu_pages(SETTINGS["nav"]))
    assert set(found) == pages
    assert [page for page, count in found.items() if count > 1] == []


def test_the_guides_are_in_the_order_of_the_work() -> None:
    (guides,) = [entry["How-to guides"] for entry in SETTINGS["nav"] if "How-to guides" in entry]
    assert [stage for group in guides for stage in group] == STAGES
    assert {page.split("/")[0] for page in menu_pages(guides)} == {"how-to"}


@pytest.mark.parametrize(("page", "most"), bounded_pages())
def test_guides_and_explanations_are_short(page: str, most: int) -> None:
    assert words(page) <= LONGER.get(page, most)


def test_a_page_that_became_short_leaves_the_list() -> None:
    most = dict(bounded_pages())
    assert [page for page in LONGER if page not in most or words(page) <= most[page]] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_a_package_that_exports_names_has_a_reference_page(name: str) -> None:
    assert f"\n::: physai.{name}\n" in (DOCS / "reference" / "api" / f"{name}.md").read_text(encoding="utf-8")


def test_the_table_of_packages_names_those_that_export_names() -> None:
    index = (DOCS / "reference" / "api" / "index.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[`physai\.(\w+)`\]\(\1\.md\) \|", index, re.MULTILINE)) == PUBLIC


def hook() -> ModuleType:
    """The hook that writes the pages of the command line."""
    spec = importlib.util.spec_from_file_location("cli_reference", DOCS / "cli_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def commands_of_pages() -> list[str]:
    """Commands that the pages of the command line ask for."""
    pages = sorted((DOCS / "reference" / "cli").glob("*.md"))
    found = [hook().MARK.findall(page.read_text(encoding="utf-8")) for page in pages if page.stem != "index"]
    assert all(len(marks) == 1 for marks in found)
    return [command for (mark,) in found for command in mark.split(", ")]


def test_each_command_is_on_one_page() -> None:
    shown = commands_of_pages()
    assert [command for command, count in Counter(shown).items() if count > 1] == []
    split = {command.split()[0] for command in shown if " " in command}
    assert {command for command in shown if " " not in command} | split == set(names()) - set(SHORT_CUTS)
    assert split.isdisjoint(shown)
    for verb in split:
        actions: dict[str, argparse.ArgumentParser] = hook().actions_of(hook().parser_of(verb))
        assert {f"{verb} {action}" for action in actions} == {one for one in shown if one.startswith(f"{verb} ")}


def test_the_table_of_the_command_line_names_each_command_at_its_page() -> None:
    index = (DOCS / "reference" / "cli" / "index.md").read_text(encoding="utf-8")
    for page, cell in re.findall(r"^\| \[[^]]+\]\(([\w.-]+)\) \| (.+) \|$", index, re.MULTILINE):
        (mark,) = hook().MARK.findall((DOCS / "reference" / "cli" / page).read_text(encoding="utf-8"))
        assert re.findall(r"`([^`]+)`", cell) == mark.split(", ")


def test_the_hook_fills_in_the_help_of_each_action() -> None:
    text: str = hook().on_page_markdown("# Keys\n\n<!-- commands: keys, sim exam -->\n", None)
    assert "<!--" not in text
    assert text.count("\n## physai ") == 2
    assert "\n## physai sim exam\n\n```text\nusage: physai sim exam" in text
    assert "\n### physai keys init\n\n```text\nusage: physai keys init" in text
