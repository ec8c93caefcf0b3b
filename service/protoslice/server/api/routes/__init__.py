"""The routes that the framework serves, a file for each kind of thing."""
