"""OpenID Connect: callers named by JWTs of issuers that the operator trusts, verified here."""
