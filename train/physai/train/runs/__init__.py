"""Run folders: configuration, identity and outcome. Needs no torch."""
