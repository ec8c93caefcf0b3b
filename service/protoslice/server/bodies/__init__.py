"""The files in an upload's body: raw, form or tar, read as a stream in constant memory."""

from protoslice.server.bodies.files import UploadedFile, files_of

__all__ = ["UploadedFile", "files_of"]
