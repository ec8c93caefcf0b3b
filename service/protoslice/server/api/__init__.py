"""The routes of the HTTP API, with the models, views and documents that belong to them."""
