"""What a MODEL on the command line means, and files that are written whole or not at all."""
