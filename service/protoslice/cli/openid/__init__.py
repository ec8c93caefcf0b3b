"""OpenID Connect for the command line: signing in by device flow, and renewal of what an issuer gave."""
