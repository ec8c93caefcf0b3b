"""Taking a store in: from arriving bytes to a manifest."""
