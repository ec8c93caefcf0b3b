"""Servers, proxies, writers of models and other means of the tests."""
