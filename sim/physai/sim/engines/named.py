"""Engines by name, from the entry points of all installed packages."""

import functools
from importlib.metadata import entry_points

from physai.sdk.base.errors import PhysaiError, unknown_name
from physai.sdk.base.plugins import contributions
from physai.sim.engines.protocol import EngineMaker

GROUP = "physai.engines"


class EngineError(PhysaiError):
    """An installed engine cannot be used."""


@functools.cache
def load_engine(name: str) -> EngineMaker:
    """Load the maker of the engine that the group `physai.engines` has under a name.

    Raises:
        UnknownNameError: no installed package has an engine of that name.
        EngineError: two packages have one, or it cannot be imported.
    """
    known = contributions(GROUP)
    if name not in known:
        raise unknown_name("engine", name, known)
    # An engine that hides the one that policies are judged in would be a verdict of other physics.
    places = sorted({entry.value for entry in entry_points(group=GROUP, name=name)})
    if len(places) > 1:
        raise EngineError(f"the engine {name!r} is in {' and in '.join(places)}; uninstall all but one of the packages")
    try:
        maker: EngineMaker = known[name].load()
    except (ImportError, AttributeError) as error:
        raise EngineError(f"the engine {name!r} cannot be imported from {places[0]}: {error}") from error
    return maker
