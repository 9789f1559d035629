"""Template of `physai.yaml`, the description of a policy from anywhere."""

from pathlib import Path


def template() -> str:
    """Return a complete description of an example, with a comment for each key."""
    return Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
