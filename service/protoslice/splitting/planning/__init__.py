"""Plans: the parts of a message that become chunks, decided from sizes alone."""
