"""Resumable uploads, without HTTP: begun, continued after interruptions, joined, made into stores."""

from protoslice.stores.options import UploadOptions
from protoslice.stores.uploads.arriving import Arrived, ArrivingRequest
from protoslice.stores.uploads.body import (
    Body,
    Checksum,
    Hash,
    Superseded,
)
from protoslice.stores.uploads.model import Failure, NewUpload, State, Upload
from protoslice.stores.uploads.uploads import Uploads

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
