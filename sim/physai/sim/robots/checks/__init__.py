"""Checks of a robot model: contacts, standing, plausibility of its home pose and efforts."""
