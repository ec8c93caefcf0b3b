"""Comparing two models, wherever their bytes lie: the command line and the service call it."""
