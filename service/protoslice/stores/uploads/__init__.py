"""Uploads that survive: begun, continued after any interruption, joined, and made into stores. Without HTTP."""

from protoslice.stores.uploads.model import Failure, NewUpload, State, Upload, UploadOptions
from protoslice.stores.uploads.service import Body, Uploads

__all__ = ["Body", "Failure", "NewUpload", "State", "Upload", "UploadOptions", "Uploads"]
