"""What other folders and packages contribute through entry points."""

from importlib.metadata import EntryPoint, entry_points


def contributions(group: str) -> dict[str, EntryPoint]:
    """Entry points of a group by name, in alphabetical order; none is imported.

    Of two of one name the last found counts: a package that is installed twice must not break a command.
    """
    return {entry.name: entry for entry in sorted(entry_points(group=group), key=lambda entry: entry.name)}
