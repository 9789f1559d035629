"""Fit the twin to recordings of the robot and quantify its uncertainty."""
