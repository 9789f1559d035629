"""Entry points by group."""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from physai.sdk.base.errors import PhysaiError, unknown_name


class PluginError(PhysaiError):
    """A contribution of an installed package cannot be used."""


def contributions(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, sorted, without importing them."""
    # If a name occurs twice the last one is used, so that a package installed twice does not break a command.
    return {entry.name: entry for entry in sorted(entry_points(group=group), key=lambda entry: entry.name)}


def load_plugin(group: str, kind: str, name: str, *, error: type[PluginError] = PluginError) -> Any:
    """Load the object that exactly one installed package contributes to a group under a name.

    Args:
        group: entry-point group.
        kind: word for messages, such as "engine".
        name: name of the entry point.
        error: type of the errors about a contribution that is there.

    Raises:
        UnknownNameError: no installed package has it.
        PluginError: two packages have it, or it cannot be imported.
    """
    known = contributions(group)
    if name not in known:
        raise unknown_name(kind, name, known)
    # One that hides another would change a policy or a verdict without a trace.
    places = sorted({entry.value for entry in entry_points(group=group, name=name)})
    if len(places) > 1:
        raise error(f"the {kind} {name!r} is in {' and in '.join(places)}; uninstall all but one of the packages")
    try:
        return known[name].load()
    except SystemExit as problem:
        raise error(f"the {kind} {name!r} cannot be imported: {places[0]} ends the process: {problem!r}") from problem
    except (ImportError, AttributeError) as problem:
        raise error(f"the {kind} {name!r} cannot be imported from {places[0]}: {problem}") from problem
