"""Episodes of a policy in the twin, under given test conditions."""
