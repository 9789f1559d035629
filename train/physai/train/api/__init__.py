"""Training and export as functions."""
