-- Search for parts of names.

CREATE INDEX names_label ON names (label, store) WHERE store IS NOT NULL;
CREATE INDEX names_of_store ON names (store, label) WHERE store IS NOT NULL;
CREATE INDEX names_trigrams ON names USING gin (label {trigrams});
