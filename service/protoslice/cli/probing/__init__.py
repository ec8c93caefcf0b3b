"""Probing a proxy between client and service: its faults, found by asking."""
