"""From a drift to a recalibrated twin, and to a new or a revoked verdict on the same bytes."""
