"""What a proxy between us and a service does, found by asking."""
