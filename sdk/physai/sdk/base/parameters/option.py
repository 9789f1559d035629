"""Remarks on parameters of public functions, from which the command line makes options."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Option:
    """A parameter's place on the command line, as far as its type does not tell it; stands in `Annotated`."""

    flags: tuple[str, ...] = ()
    """Flags, such as `-o`; the long one is made from the parameter's name unless one is here."""
    old: tuple[str, ...] = ()
    """Flags of the last version, which still work and say so."""
    metavar: str | None = None
    help: str | None = None
    """Help instead of the docstring's text; empty for an option that the help leaves out."""
    word: bool = False
    """A positional word although there is a default."""
    repeat: bool = False
    """A sequence is filled by giving the option several times."""
    bare: str | None = None
    """Value of the option without one."""
    exclusive: str | None = None
    """Of the options with the same text here, only one may be given."""
    choices: tuple[str, ...] | None = None
    flatten: bool = False
    """The parameter is a dataclass, whose fields become options."""
    lone: str | None = None
    """Key of a mapping that may be given without a value."""
    rest: bool = False
    """A sequence takes all words that follow, options too."""
    check: Callable[[str], Any] | None = None
    """Makes the value of a word; raises PhysaiError for a word that it refuses."""
    hidden: bool = False
    """The command line does not have the parameter."""
