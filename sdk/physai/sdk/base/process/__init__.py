"""This process and its children: ends, isolation, and the software that runs."""
