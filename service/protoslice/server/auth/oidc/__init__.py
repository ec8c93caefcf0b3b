"""OpenID Connect: verifies JWTs of issuers that the operator trusts, and finds the callers that they name."""
