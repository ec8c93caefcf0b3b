"""Former import paths of what formats of other packages import, until 0.3: use `protoslice.formats`."""
