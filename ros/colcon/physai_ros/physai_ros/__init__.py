"""Executables of the colcon package; what they run is `physai.ros`."""
