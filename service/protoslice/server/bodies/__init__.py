"""Upload bodies of all kinds: raw, form, tar, recipe and resumable. They are read as a stream in constant memory."""
