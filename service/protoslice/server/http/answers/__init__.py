"""Answers to GET and HEAD: planned, then sent."""
