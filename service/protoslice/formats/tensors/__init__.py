"""Former import paths for formats of other packages, until 0.3: use `protoslice.formats`."""
