"""Downloads: ranges in parallel, resumed, verified."""
