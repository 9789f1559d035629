"""Checks of the statements in a twin file."""
