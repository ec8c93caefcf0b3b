"""Thread pools, concurrent coroutines, single flight, a weighted LRU cache and read windows."""
