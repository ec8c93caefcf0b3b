"""Views of one opened store: functions that return bytes, JSON or facts, and cache their results with it."""
