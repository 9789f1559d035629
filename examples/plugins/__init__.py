"""One extension of each kind: a gate, a reader of recordings, an importer of robots, an observation function."""
