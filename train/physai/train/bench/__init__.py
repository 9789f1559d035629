"""`physai bench`: comparisons with other software; a benchmark fails if its workload did not run correctly."""
