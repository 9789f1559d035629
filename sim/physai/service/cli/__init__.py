"""Verbs that use the service or may send work to it."""
