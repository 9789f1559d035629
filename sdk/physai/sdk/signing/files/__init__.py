"""Files of a publisher, a validator and an owner: each procedure on bundles, keys and trust files in one call."""
