"""Bodies of uploads: raw, form, tar, recipe and resumable, read as a stream in constant memory."""
