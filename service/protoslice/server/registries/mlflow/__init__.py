"""MLflow: the protocol of its artifact proxy over drafts."""

from protoslice.server.registries.mlflow import artifacts, transfers

ROUTERS = (artifacts.router, transfers.router)
