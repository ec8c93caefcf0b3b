"""`https://` and `http://`: objects of a web server, read-only."""
