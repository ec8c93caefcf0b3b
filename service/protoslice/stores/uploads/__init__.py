"""Resumable uploads, without HTTP: begun, continued after interruptions, joined, made into stores."""

from protoslice.stores.options import UploadOptions
from protoslice.stores.uploads.arriving import Arrived, ArrivingRequest
from protoslice.stores.uploads.body import (
    AlreadyComplete,
    Body,
    Checksum,
    Hash,
    InconsistentLength,
    JoinedUpload,
    Superseded,
    WrongOffset,
)
from protoslice.stores.uploads.model import Failure, NewUpload, State, Upload
from protoslice.stores.uploads.uploads import Uploads

__all__ = [
    "AlreadyComplete",
    "Arrived",
    "ArrivingRequest",
    "Body",
    "Checksum",
    "Failure",
    "Hash",
    "InconsistentLength",
    "JoinedUpload",
    "NewUpload",
    "State",
    "Superseded",
    "Upload",
    "UploadOptions",
    "Uploads",
    "WrongOffset",
]
