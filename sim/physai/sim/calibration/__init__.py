"""Fitting the twin to recordings of the robot, and saying how far to believe it."""
