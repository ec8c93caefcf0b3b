"""Views of one opened store: functions that return bytes, JSON or facts, and keep what they computed with it."""
