"""Tasks of arms: reach, lift and push."""
