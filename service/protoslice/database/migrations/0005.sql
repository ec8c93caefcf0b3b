-- Repositories of OCI: manifests, tags that point at them, and blobs.

-- `referrer` is the descriptor by which lists of referrers of `subject` show a manifest.
CREATE TABLE manifests (
    space {text} NOT NULL,
    repository bigint NOT NULL,
    digest {text} NOT NULL,
    media_type {text} NOT NULL,
    body {bytes} NOT NULL,
    store {text},
    subject {text},
    referrer {text},
    pushed bigint NOT NULL,
    PRIMARY KEY (space, repository, digest),
    FOREIGN KEY (space, repository) REFERENCES repositories (space, id) ON DELETE CASCADE
);
CREATE INDEX manifests_subject ON manifests (space, repository, subject, digest) WHERE subject IS NOT NULL;
CREATE INDEX manifests_store ON manifests (space, store) WHERE store IS NOT NULL;

-- SQLite adds no foreign key of several columns to a table.
CREATE TABLE names_of_content (
    space {text} NOT NULL,
    repository bigint NOT NULL,
    kind {text} NOT NULL,
    name {text} NOT NULL,
    store {text},
    commit_id {text},
    manifest {text},
    version {bytes} NOT NULL,
    updated bigint NOT NULL,
    changed bigint,
    PRIMARY KEY (space, repository, kind, name),
    FOREIGN KEY (space, repository) REFERENCES repositories (space, id) ON DELETE CASCADE,
    FOREIGN KEY (space, repository, commit_id) REFERENCES commits (space, repository, id) ON DELETE CASCADE,
    FOREIGN KEY (space, repository, manifest) REFERENCES manifests (space, repository, digest) ON DELETE CASCADE
) {composite};
INSERT INTO names_of_content (space, repository, kind, name, store, commit_id, version, updated, changed)
    SELECT space, repository, kind, name, store, commit_id, version, updated, changed FROM names;
DROP TABLE names;
ALTER TABLE names_of_content RENAME TO names;
CREATE INDEX names_store ON names (space, store) WHERE store IS NOT NULL;
CREATE INDEX names_commit ON names (space, repository, commit_id) WHERE commit_id IS NOT NULL;
CREATE INDEX names_manifest ON names (space, repository, manifest) WHERE manifest IS NOT NULL;
CREATE INDEX names_updated ON names (space, repository, kind, updated);
CREATE INDEX names_changed ON names (changed) WHERE changed IS NOT NULL;

-- A blob that is `wanted` was named by a manifest before it came.
ALTER TABLE kept_files ADD COLUMN wanted smallint NOT NULL DEFAULT 0;
