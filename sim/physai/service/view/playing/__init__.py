"""Policies and recorded episodes shown in a window, a browser or a file."""
