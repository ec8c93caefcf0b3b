"""The models that commands read, and the output files that commands write completely or not at all."""
