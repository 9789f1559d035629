"""Recordings that are copies of each other, or show one motion or trajectory."""
