"""Programs around the package: the command line, and what it runs."""
