-- Names of a store by the time at which they were pointed at it, without a look at the other names of its space.

DROP INDEX names_store;
CREATE INDEX names_store ON names (space, store, updated) WHERE store IS NOT NULL;
