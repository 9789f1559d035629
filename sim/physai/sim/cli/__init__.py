"""Subcommands of `physai` that need the simulator."""
