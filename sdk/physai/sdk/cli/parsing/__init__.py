"""Arguments of the command line from signatures and docstrings."""
