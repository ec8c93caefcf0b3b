"""The commands, with one module for each group of related commands."""
