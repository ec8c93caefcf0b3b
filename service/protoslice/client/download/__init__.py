"""Downloads that fetch ranges concurrently, resume after interruptions, and verify the bytes."""
