"""Cameras of the twin: their images by two renderers, and what a policy sees of them.

Nothing here is public yet.
"""
