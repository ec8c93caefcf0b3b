"""Layout 2: where each record lies in a storage, and how it is sealed, listed and upgraded."""
