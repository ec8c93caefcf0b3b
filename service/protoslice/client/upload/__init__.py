"""Uploads of files: plans, recipes, and resumable transfers."""
