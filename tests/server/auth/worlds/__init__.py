"""Two worlds: one with full spaces beside that of a caller, one in which they are empty."""
