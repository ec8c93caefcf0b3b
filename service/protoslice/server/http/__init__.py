"""HTTP answers: turns the facts of a request into status, headers and bytes."""
