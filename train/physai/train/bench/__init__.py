"""`physai bench`: comparisons with other software; each fails if its workload did not run correctly."""
