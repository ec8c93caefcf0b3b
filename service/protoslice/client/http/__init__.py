"""HTTP to a service: connections, retries, failures."""
