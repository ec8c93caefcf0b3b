"""OCI distribution API: what oras, skopeo, docker and the like speak, below `/v2/`."""

from protoslice.server.registries.oci.routes import router

__all__ = ["ROUTER"]

ROUTER = router
