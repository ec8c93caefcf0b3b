"""Layout 3 of a storage: keys, index entries, listing helpers and the layout marker."""
