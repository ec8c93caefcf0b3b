"""Sources, which answer range reads of files, bytes and stored objects; ropes over sources; folders of files."""
