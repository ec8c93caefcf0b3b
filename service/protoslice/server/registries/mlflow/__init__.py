"""MLflow: the protocol of its artifact proxy over stores; the token is Bearer, or the password of Basic."""

from protoslice.server.registries.mlflow import artifacts, transfers

ROUTERS = (artifacts.router, transfers.router)
