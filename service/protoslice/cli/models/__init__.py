"""Models that the command line names, and output files that are written completely or not at all."""
