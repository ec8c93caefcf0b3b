"""Objects of stores: verified range reads, files of several objects, and representations over them."""
