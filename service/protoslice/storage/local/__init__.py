"""`file://`: objects as files below a directory."""
