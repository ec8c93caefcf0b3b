"""The HTTP service: FastAPI over `protoslice.stores`. No other package uses HTTP on the server's side."""
