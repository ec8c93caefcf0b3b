-- Whether requests need a token: `open` or `tokens`, the same for all processes; NULL until the first of them says so.

ALTER TABLE meta ADD COLUMN access {text};
-- A catalogue that was restored from a backup has another incarnation; null for one that was not.

ALTER TABLE meta ADD COLUMN incarnation {bytes};
-- Rows that no bytes stand for count too: see `spaces.Held.entries`.

ALTER TABLE usage ADD COLUMN entries bigint NOT NULL DEFAULT 0;
INSERT INTO usage (space, slot, stored_bytes, stores, logical_bytes, entries)
SELECT space, 0, 0, 0, 0, count(*) FROM (
    SELECT space FROM repositories WHERE id > 1 UNION ALL
    SELECT space FROM names WHERE kind NOT IN ('folder', 'sealed') UNION ALL
    SELECT space FROM commits UNION ALL
    SELECT space FROM manifests UNION ALL
    SELECT space FROM kept_files WHERE kind IN ('file', 'blob')
) counted WHERE 1 = 1 GROUP BY space
ON CONFLICT (space, slot) DO UPDATE SET entries = excluded.entries;

-- 1 for a store that only commits have made: it goes with its last name.

ALTER TABLE stores ADD COLUMN of_commits smallint NOT NULL DEFAULT 0;

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
-- Repositories of the hub are unique by name without regard to case. Of older ones that differ in case alone, the first
-- has the name in lower case; the others have `=` and their own name behind it, which no name contains.

ALTER TABLE repositories ADD COLUMN folded {text};
UPDATE repositories SET folded = lower(name) WHERE protocol = 'hub';
UPDATE repositories SET folded = folded || '=' || name WHERE (space, id) IN (
    SELECT space, id FROM (
        SELECT space, id, row_number() OVER (PARTITION BY space, folded ORDER BY created, name) AS place
        FROM repositories WHERE protocol = 'hub'
    ) ranked WHERE place > 1
);
CREATE UNIQUE INDEX repositories_folded ON repositories (space, folded) WHERE folded IS NOT NULL;

-- Names that repositories had before they were moved, in lower case, until another repository takes them.

CREATE TABLE former_names (
    space {text} NOT NULL,
    folded {text} NOT NULL,
    repository bigint NOT NULL,
    PRIMARY KEY (space, folded),
    FOREIGN KEY (space, repository) REFERENCES repositories (space, id) ON DELETE CASCADE
) {composite};
CREATE INDEX former_names_repository ON former_names (space, repository);
-- Times of the last backup and the last dump, null before the first.

ALTER TABLE meta ADD COLUMN backed_up bigint;
ALTER TABLE meta ADD COLUMN dumped bigint;
-- What the last collection saw of the clock, null before the first.

ALTER TABLE meta ADD COLUMN clock {text};
-- Bytes that wait for their deletion; 0 in rows of before, and for objects that were never published.

ALTER TABLE trash ADD COLUMN size bigint NOT NULL DEFAULT 0;
-- Some bits of the secrets for signatures of a process, the one that signs first; null where it signs nothing.

ALTER TABLE processes ADD COLUMN secrets {text};
-- Artifacts are found by names in lower case. Other names have only what was computed for pulls of Ollama.

UPDATE repositories SET protocol = 'removed', name = CAST(id AS text) WHERE protocol = 'oci' AND name <> lower(name);
-- 1 for a commit that may have lost its last name or child: it goes unless another one leads to it.

ALTER TABLE commits ADD COLUMN due smallint;
CREATE INDEX commits_due ON commits (space, repository, id) WHERE due = 1;
-- Does not begin like the primary key: PostgreSQL chose this index in its place while it had no statistics.
DROP INDEX commits_digits;
CREATE INDEX commits_digits ON commits (space, digits, repository, number);
CREATE INDEX commits_parent ON commits (space, repository, parent) WHERE parent IS NOT NULL;
-- When a token was used, to the hour; null for one that was not since this was noted.

ALTER TABLE tokens ADD COLUMN used bigint;
-- Time at which a space was removed; 0 once its rows are being deleted, null while it exists.

ALTER TABLE spaces ADD COLUMN removed bigint;
