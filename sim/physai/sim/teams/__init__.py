"""Several robots in one physics, each with the task and the contract that it has alone."""
