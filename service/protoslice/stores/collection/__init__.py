"""Garbage collection: listings find what no store needs any more, and claims decide if it may go."""
