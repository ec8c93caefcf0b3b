"""Costs of requests to the service: a probe inside it, a client, and the table of the worst requests."""
