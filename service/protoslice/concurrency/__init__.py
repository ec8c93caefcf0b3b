"""Work off the event loop, one flight for many callers, and a weighted LRU."""
