"""The control loop and its ticks."""
