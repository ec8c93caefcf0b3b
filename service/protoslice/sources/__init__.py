"""Sources: files, bytes and whatever answers range reads; ropes over them; folders of files."""
