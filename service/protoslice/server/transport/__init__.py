"""Everything that knows uvicorn's inside."""
