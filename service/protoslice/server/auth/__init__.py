"""Access control: spaces, callers, and the permissions of a caller in a space."""
