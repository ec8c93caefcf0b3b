"""Uploads: plans, recipes, resumable transfers."""
