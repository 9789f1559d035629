"""Documents about a verdict after its signature: a validator's word on it, and reports of monitors."""
