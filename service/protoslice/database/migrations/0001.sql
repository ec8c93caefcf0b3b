-- Tokens, the service key, webhooks.
-- {bytes}, {id} and {composite} differ between engines; see ../schema.py. Times are microseconds since the epoch.

CREATE TABLE meta (
    one integer PRIMARY KEY CHECK (one = 1),
    schema integer NOT NULL,
    catalogue_id {bytes} NOT NULL,
    service_key {bytes},
    first_token {text}
);

CREATE TABLE changes (
    id {bytes} PRIMARY KEY,
    at bigint NOT NULL
) {composite};
CREATE INDEX changes_at ON changes (at);

CREATE TABLE tokens (
    id {text} PRIMARY KEY,
    space {text} NOT NULL,
    name {text} NOT NULL,
    scopes {text} NOT NULL,
    tags {text} NOT NULL,
    hash {bytes} NOT NULL,
    created bigint NOT NULL,
    expires bigint
) {composite};
CREATE INDEX tokens_space ON tokens (space, id);

CREATE TABLE webhooks (
    space {text} NOT NULL,
    name {text} NOT NULL,
    id {text} NOT NULL UNIQUE,
    url {text} NOT NULL,
    events {text} NOT NULL,
    created bigint NOT NULL,
    secret {bytes} NOT NULL,
    PRIMARY KEY (space, name)
) {composite};
