"""Executables of the colcon package; the implementation is `physai.ros`."""
