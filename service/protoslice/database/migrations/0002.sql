-- Uploaded schemas, and small facts derived from stores.

CREATE TABLE schemas (
    space {text} NOT NULL,
    name {text} NOT NULL,
    version {bytes} NOT NULL,
    modified bigint NOT NULL,
    size bigint NOT NULL,
    data {bytes} NOT NULL,
    PRIMARY KEY (space, name)
);

-- Without data, the fact is an object of the storage.
CREATE TABLE derived (
    space {text} NOT NULL,
    store {text} NOT NULL,
    name {text} NOT NULL,
    made bigint NOT NULL,
    data {bytes},
    PRIMARY KEY (space, store, name)
);
