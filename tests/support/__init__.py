"""The helpers of the tests: servers, proxies, writers of models, and others."""
