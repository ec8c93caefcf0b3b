"""Objects that are being written: reserved in the catalogue first, published with what refers to them."""
