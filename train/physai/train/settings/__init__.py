"""Training settings, and their presets per task."""
