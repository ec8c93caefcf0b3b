"""The HTTP service: FastAPI over `protoslice.stores`. No other package of the server side uses HTTP."""
