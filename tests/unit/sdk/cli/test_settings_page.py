"""The settings that docs/explanation/robot.md shows are the defaults."""

import re
from pathlib import Path

from physai.sdk.evidence.requirements import Requirements

PAGE = Path(__file__).parents[4] / "docs" / "explanation" / "robot.md"


def test_the_page_shows_the_defaults() -> None:
    found = re.search(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    assert Requirements.parse(found[1], source=str(PAGE)) == Requirements()
