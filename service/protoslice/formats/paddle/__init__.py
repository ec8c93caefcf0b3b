"""PaddlePaddle: programs and parameter files."""
