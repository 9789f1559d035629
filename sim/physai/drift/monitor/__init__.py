"""Blocks of recordings, what each says, and when they raise an alarm."""
