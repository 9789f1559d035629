"""Ray clusters: addresses, local clusters, and work on them."""
