"""Task files to start from."""

import re
from pathlib import Path
from typing import Annotated

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")


def new_task(name: str, *, out: Annotated[Path | str, Option(flags=("-o",), metavar="DIR")] = Path()) -> Path:
    """Write NAME.py, a commented task that trains as it is.

    Args:
        name: name of the task: letters, digits, _ and -.
        out: folder of the file.

    Returns:
        Path of the file.

    Raises:
        PhysaiError: the name is none, or is taken, or the file exists or cannot be written.
    """
    from physai.sim.tasks.registry import BUILT_IN

    if not _NAME.fullmatch(name):
        raise PhysaiError(f"{name[:80]!r} is no name of a task; use letters, digits, _ and -, such as my_task")
    if name in BUILT_IN:
        raise PhysaiError(f"{name} is a built-in task; choose another name")
    path = Path(out) / f"{name}.py"
    text = (Path(__file__).parent / "template.py").read_text(encoding="utf-8")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text.replace("NAME", name))
    except FileExistsError:
        raise PhysaiError(f"{path} exists; choose another name, or remove it") from None
    except OSError as error:
        raise PhysaiError(f"{path}: cannot be written: {error.strerror}") from error
    return path
