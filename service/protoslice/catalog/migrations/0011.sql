-- Whether requests need a token: `open` or `tokens`, the same for all processes; NULL until the first of them says so.

ALTER TABLE meta ADD COLUMN access {text};
-- A catalogue that was restored from a backup has another incarnation; null for one that was not.

ALTER TABLE meta ADD COLUMN incarnation {bytes};
-- Repositories that were removed keep their rows until these are deleted, batch by batch.

CREATE INDEX repositories_removed ON repositories (protocol) WHERE protocol = 'removed';
-- Processes that use the catalogue, as each of them says every few seconds: an upgrade is refused while they run.

CREATE TABLE processes (
    id {bytes} PRIMARY KEY,
    host {text} NOT NULL,
    pid bigint NOT NULL,
    version {text} NOT NULL,
    schema integer NOT NULL,
    seen bigint NOT NULL
) {composite};
-- Names of tokens and accounts are chosen: their ids tell callers of one name apart. Empty in rows of before.

ALTER TABLE audit ADD COLUMN who_id {text} NOT NULL DEFAULT '';
ALTER TABLE stores ADD COLUMN uploader_id {text} NOT NULL DEFAULT '';
