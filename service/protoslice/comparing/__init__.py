"""The comparison of two models, which the command line and the service use."""
