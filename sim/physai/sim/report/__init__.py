"""Renderings of a verdict: a page for people, JUnit XML for machines."""
