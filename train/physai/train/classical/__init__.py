"""Designed controllers: LQR, time-varying LQR along a trajectory, and trajectory optimisation."""
