"""Reward models fitted to answers."""
