"""What a folder contributes to the `physai` command."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CliCommand:
    """One verb of `physai`, found through the entry-point group `physai.commands`.

    The module that holds it is imported for `physai --help`, so it imports nothing heavy at its top;
    `run` does.
    """

    summary: str
    """One line for `physai --help`."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    """Declares the verb's options."""

    run: Callable[[argparse.Namespace], int]
    """Does the work and returns the exit code; raises PhysaiError for bad input."""
