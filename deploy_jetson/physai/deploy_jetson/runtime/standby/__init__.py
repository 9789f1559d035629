"""The runtime before it drives."""
