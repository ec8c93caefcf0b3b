"""Routes, models, views and problems, and the OpenAPI document made of them."""
