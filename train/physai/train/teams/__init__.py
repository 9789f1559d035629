"""Several robots learn in one physics: a policy and a reward each, critics that see all of them."""
