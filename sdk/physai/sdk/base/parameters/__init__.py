"""Parameters of public functions: their place on the command line, and checks of their values."""
