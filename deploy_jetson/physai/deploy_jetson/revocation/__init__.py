"""Withdrawn verdicts: the word of validators is kept, watched while a policy runs, and obeyed."""
