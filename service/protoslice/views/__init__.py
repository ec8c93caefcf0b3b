"""The views of an opened store: functions that return bytes, JSON or facts, and cache their results with the store."""
