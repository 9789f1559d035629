"""Template of `physai.yaml`, the description of a policy from anywhere."""

from pathlib import Path

from physai.foreign.errors import ForeignPolicyError


def template() -> str:
    """Return a complete description of an example, with a comment for each key."""
    return Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")


def write_template(file: Path) -> None:
    """Write the template.

    Raises:
        ForeignPolicyError: the file exists or cannot be written.
    """
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(template())
    except FileExistsError:
        raise ForeignPolicyError(f"{file}: exists; choose another name, such as physai.yaml") from None
    except OSError as error:
        raise ForeignPolicyError(f"{file}: cannot be written: {(error.strerror or str(error)).lower()}") from None
