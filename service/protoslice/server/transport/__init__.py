"""All code that depends on the internals of uvicorn."""
