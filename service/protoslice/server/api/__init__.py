"""Routes, models, views and problems."""
