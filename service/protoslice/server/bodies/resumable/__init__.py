"""Resumable uploads on the wire: tus 1.0 and the careful form of the IETF draft, over one mechanism."""
