"""OpenID Connect of a person: signing in by device flow, and renewal of what an issuer gave."""
