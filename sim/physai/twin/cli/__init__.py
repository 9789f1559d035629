"""Verbs that record, calibrate, replay and drive a twin."""
