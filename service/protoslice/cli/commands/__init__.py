"""The commands of the program. Each module has a group of related commands."""
