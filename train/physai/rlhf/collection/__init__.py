"""Segments of a policy's motion, and the pairs of them to ask about."""
