-- Search for parts of names.

DROP INDEX names_store;
CREATE INDEX names_store ON names (space, store, repository, kind, name) WHERE store IS NOT NULL;
CREATE INDEX names_label ON names (label, store) WHERE store IS NOT NULL;
CREATE INDEX names_of_store ON names (store, label) WHERE store IS NOT NULL;
CREATE INDEX names_trigrams ON names USING gin (label {trigrams});
