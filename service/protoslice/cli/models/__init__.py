"""Models that the command line names, and files that are written whole or not at all."""
