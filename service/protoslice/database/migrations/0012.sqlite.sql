-- Search for parts of names of repositories, which have no names in `names` before their first files. Ids of these are
-- random, so that no two spaces share one.

CREATE VIRTUAL TABLE repository_trigrams USING fts5(
    label, tokenize = 'trigram case_sensitive 1', detail = 'none'
);
INSERT INTO repository_trigrams (rowid, label)
    SELECT id, space || char(10) || lower(name) FROM repositories WHERE protocol IN ('hub', 'oci');
CREATE TRIGGER repositories_inserted AFTER INSERT ON repositories WHEN new.protocol IN ('hub', 'oci')
    BEGIN INSERT INTO repository_trigrams (rowid, label) VALUES (new.id, new.space || char(10) || lower(new.name)); END;
CREATE TRIGGER repositories_changed AFTER UPDATE OF protocol, name ON repositories
    BEGIN DELETE FROM repository_trigrams WHERE rowid = old.id; INSERT INTO repository_trigrams (rowid, label)
        SELECT new.id, new.space || char(10) || lower(new.name) WHERE new.protocol IN ('hub', 'oci'); END;
CREATE TRIGGER repositories_deleted AFTER DELETE ON repositories
    BEGIN DELETE FROM repository_trigrams WHERE rowid = old.id; END;

-- Stores are found by the paths of their files: a label for each row of a store, without a store once it was removed.
-- Stores of before are found by that of their root, or of their first file.

INSERT INTO repositories (space, id, protocol, name, created)
SELECT DISTINCT space, 0, 'stores', '', 0 FROM stores WHERE 1 = 1 ON CONFLICT DO NOTHING;
INSERT INTO names (space, repository, kind, name, store, version, updated, label)
SELECT space, 0, 'files', CAST(id AS text), CASE WHEN deleted IS NULL THEN digest END, CAST('' AS {bytes}), created,
    space || '
~
' || lower(path) FROM (
    SELECT space, id, digest, deleted, created, (
        SELECT coalesce(json_extract(data, '$.root'), json_extract(data, '$.files[0][0]'))
        FROM (SELECT CAST(substr(manifest, 1, length(manifest) - 65) AS text) AS data) WHERE json_valid(data)
    ) AS path FROM stores
) found WHERE path IS NOT NULL;

-- Stores whose removal can be undone are listed for each space.

CREATE INDEX stores_restorable ON stores (space, deleted, id) WHERE deleted IS NOT NULL;
