"""Root of a new store: the file that is its proto, with index, plan and side object."""
