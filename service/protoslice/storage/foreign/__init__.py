"""`fsspec+NAME://`: files of any file system of fsspec, read in place."""
