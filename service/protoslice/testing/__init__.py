"""What proves that a part keeps its contract: for this project's tests and for the tests of those who extend it."""
