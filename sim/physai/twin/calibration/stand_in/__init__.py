"""Stand-ins for robots, and synthetic recordings of them."""
