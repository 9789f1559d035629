"""Recordings of episodes in MCAP files, and their replay."""
