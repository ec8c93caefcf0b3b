"""What a request costs the service: the probe inside it, the client outside, and the table of the worst requests."""
