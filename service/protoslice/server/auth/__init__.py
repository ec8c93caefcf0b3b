"""Access: spaces, and who may do what in a space."""
