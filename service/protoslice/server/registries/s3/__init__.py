"""The read operations of S3, for programs that read models from buckets. A bucket is a space."""

from protoslice.server.registries.s3.quick import QuickObject, find_object
from protoslice.server.registries.s3.requests import enter_s3
from protoslice.server.registries.s3.routes import keys_router, router

__all__ = ["QuickObject", "enter_s3", "find_object", "keys_router", "router"]
