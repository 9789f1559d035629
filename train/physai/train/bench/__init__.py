"""`physai bench`: measurements beside other software; each fails loudly if its workload did not run right."""
