"""Import of robots from elsewhere, with a preview and a check."""
