"""The code of a page of the documentation, for a test that runs it in a service of its own."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ADDRESS = "http://127.0.0.1:8800"


def page_code(page: str, title: str, url: str) -> str:
    """The block with a title, the service's address replaced by another."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (code,) = re.findall(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    assert ADDRESS in code
    return code.replace(ADDRESS, url)
