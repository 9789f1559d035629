"""Verbs of the `physai` command that need the simulator."""
