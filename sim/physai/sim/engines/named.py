"""Engines by name, from the entry points of all installed packages."""

import functools

from physai.sdk.base.plugins import PluginError, load_plugin
from physai.sim.engines.protocol import EngineMaker

GROUP = "physai.engines"


class EngineError(PluginError):
    """An installed engine cannot be used."""


@functools.cache
def load_engine(name: str) -> EngineMaker:
    """Load the maker of the engine that the group `physai.engines` has under a name.

    Raises:
        UnknownNameError: no installed package has an engine of that name.
        EngineError: two packages have one, or it cannot be imported.
    """
    maker: EngineMaker = load_plugin(GROUP, "engine", name, error=EngineError)
    return maker
