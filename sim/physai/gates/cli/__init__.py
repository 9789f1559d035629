"""`physai sim exam`."""
