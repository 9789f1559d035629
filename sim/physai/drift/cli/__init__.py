"""Verb that compares a robot with its twin."""
