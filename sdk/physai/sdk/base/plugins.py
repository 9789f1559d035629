"""Entry points by group."""

from importlib.metadata import EntryPoint, entry_points


def contributions(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, sorted, without importing them."""
    # If a name occurs twice the last one is used, so that a package installed twice does not break a command.
    return {entry.name: entry for entry in sorted(entry_points(group=group), key=lambda entry: entry.name)}
