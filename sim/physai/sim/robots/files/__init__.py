"""Robot model files: untrusted XML, archives and the files that they name."""
