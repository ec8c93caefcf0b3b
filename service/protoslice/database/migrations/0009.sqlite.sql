-- Search for parts of names. The index of trigrams refers to names by number, which a table WITHOUT ROWID has not.

CREATE TABLE numbered_names (
    number integer PRIMARY KEY,
    space text NOT NULL,
    repository bigint NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    store text,
    commit_id text,
    manifest text,
    version blob NOT NULL,
    updated bigint NOT NULL,
    changed bigint,
    label text,
    UNIQUE (space, repository, kind, name),
    FOREIGN KEY (space, repository) REFERENCES repositories (space, id) ON DELETE CASCADE,
    FOREIGN KEY (space, repository, commit_id) REFERENCES commits (space, repository, id) ON DELETE CASCADE,
    FOREIGN KEY (space, repository, manifest) REFERENCES manifests (space, repository, digest) ON DELETE CASCADE
);
INSERT INTO numbered_names (space, repository, kind, name, store, commit_id, manifest, version, updated, changed, label)
    SELECT space, repository, kind, name, store, commit_id, manifest, version, updated, changed, label FROM names;
DROP TABLE names;
ALTER TABLE numbered_names RENAME TO names;
CREATE INDEX names_store ON names (space, store, repository, kind, name) WHERE store IS NOT NULL;
CREATE INDEX names_commit ON names (space, repository, commit_id) WHERE commit_id IS NOT NULL;
CREATE INDEX names_manifest ON names (space, repository, manifest) WHERE manifest IS NOT NULL;
CREATE INDEX names_updated ON names (space, repository, kind, updated);
CREATE INDEX names_changed ON names (changed) WHERE changed IS NOT NULL;
CREATE INDEX names_label ON names (label, store) WHERE store IS NOT NULL;
CREATE INDEX names_of_store ON names (store, label) WHERE store IS NOT NULL;

CREATE VIRTUAL TABLE name_trigrams USING fts5(
    label, content = 'names', content_rowid = 'number', tokenize = 'trigram case_sensitive 1', detail = 'none'
);
INSERT INTO name_trigrams (rowid, label) SELECT number, label FROM names WHERE label IS NOT NULL;
CREATE TRIGGER names_inserted AFTER INSERT ON names WHEN new.label IS NOT NULL
    BEGIN INSERT INTO name_trigrams (rowid, label) VALUES (new.number, new.label); END;
CREATE TRIGGER names_deleted AFTER DELETE ON names WHEN old.label IS NOT NULL
    BEGIN INSERT INTO name_trigrams (name_trigrams, rowid, label) VALUES ('delete', old.number, old.label); END;
