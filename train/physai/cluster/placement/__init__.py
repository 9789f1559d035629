"""Distribution of worlds over generators, and of generators over nodes."""
