"""HTTP connections to a service, with retries and errors."""
