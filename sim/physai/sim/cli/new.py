"""`physai new`: writes a commented file to start from."""

import argparse
import re
from pathlib import Path

from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.command import CliCommand

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai new`."""
    actions = parser.add_subparsers(dest="action", metavar="task", required=True)
    task = actions.add_parser(
        "task", help="write a task file", description="Write NAME.py, a commented task that trains as it is."
    )
    task.add_argument("name", metavar="NAME", help="name of the task: letters, digits, _ and -")
    task.add_argument("-o", "--out", metavar="DIR", type=Path, default=Path(), help="folder (default: this one)")


def run(arguments: argparse.Namespace) -> int:
    """Writes the file; an existing one is left alone."""
    from physai.sim.tasks.registry import BUILT_IN

    name: str = arguments.name
    if not _NAME.fullmatch(name):
        raise PhysaiError(f"{name[:80]!r} is no name of a task; use letters, digits, _ and -, such as my_task")
    if name in BUILT_IN:
        raise PhysaiError(f"{name} is a built-in task; choose another name")
    path: Path = arguments.out / f"{name}.py"
    text = (Path(__file__).parents[1] / "tasks" / "template.py").read_text(encoding="utf-8")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text.replace("NAME", name))
    except FileExistsError:
        raise PhysaiError(f"{path} exists; choose another name, or remove it") from None
    except OSError as error:
        raise PhysaiError(f"{path}: cannot be written: {error.strerror}") from error
    print(f"{path}\nnext: physai train {path}")
    return 0


command = CliCommand(summary="write a task file to start from", add_arguments=add_arguments, run=run)
"""The verb `new`."""
