"""The type of a `physai` verb."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CliCommand:
    """One verb of `physai`, registered in the entry-point group `physai.commands`.

    `physai --help` imports the modules of all verbs, so they import heavy packages only inside `run`.
    """

    summary: str
    """One line for `physai --help`."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    """Declares the verb's options."""

    run: Callable[[argparse.Namespace], int]
    """Runs the verb and returns the exit code; raises PhysaiError for bad input."""
