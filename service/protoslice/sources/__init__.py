"""Sources: files, bytes and other objects with range reads; ropes over them; folders of files."""
