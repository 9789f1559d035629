"""The robot's side of a flash."""
