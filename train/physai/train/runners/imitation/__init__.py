"""Imitation of a teacher or of recordings."""
