"""Resumable uploads, without HTTP: they are created, continued after interruptions, joined, and made into stores."""

from protoslice.catalog.uploads import Failure, State, Upload
from protoslice.serving.store_options import UploadOptions
from protoslice.uploads.arriving import Arrived, ArrivingRequest
from protoslice.uploads.body import Body, Checksum, Hash, Superseded
from protoslice.uploads.uploads import NewUpload, Uploads

__all__ = [
    "Arrived",
    "ArrivingRequest",
    "Body",
    "Checksum",
    "Failure",
    "Hash",
    "NewUpload",
    "State",
    "Superseded",
    "Upload",
    "UploadOptions",
    "Uploads",
]
