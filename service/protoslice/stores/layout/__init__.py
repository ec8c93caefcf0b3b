"""Layout 2 of a storage: keys, index entries, listing helpers and the layout marker."""
