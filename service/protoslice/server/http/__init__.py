"""HTTP answers: from the facts of a request to status, headers and bytes."""
