"""Worker threads, single flight, a weighted LRU cache and read windows."""
