"""Equations of motion of a robot along its recordings, and what changes of it would do."""
