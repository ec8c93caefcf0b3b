"""The HTTP service: FastAPI over `protoslice.stores`. Nothing outside this package knows HTTP."""
