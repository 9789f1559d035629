"""Verbs that train, alone or on a cluster."""
