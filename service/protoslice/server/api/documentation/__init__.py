"""Documentation made of the code: the OpenAPI document, and the reference pages of docs/."""
