"""Lengths of time of the monitor."""

BLOCK_S = 2.5
"""Length of a block [s]."""
HORIZON_S = 600.0
"""Length of an unchanged run whose share of false alarms is bounded [s]."""
