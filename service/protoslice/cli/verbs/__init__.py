"""The verbs, a module for those that belong together."""
