-- Search for parts of names of repositories, which have no names in `names` before their first files.

CREATE INDEX repositories_trigrams ON repositories USING gin ((space || chr(10) || lower(name)) {trigrams})
    WHERE protocol IN ('hub', 'oci');

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
        -- Not parsed as JSON, which a damaged manifest would end; bytes that are not ASCII have a backslash.
        SELECT coalesce(
            substring(data FROM '"root":"([^"\\]+)"'), substring(data FROM '"files":\[\["([^"\\]+)"')
        ) FROM (SELECT encode(substring(manifest FROM 1 FOR 4096), 'escape') AS data) head
    ) AS path FROM stores
) found WHERE path IS NOT NULL;

-- Stores whose removal can be undone are listed for each space.

CREATE INDEX stores_restorable ON stores (space, deleted, id) WHERE deleted IS NOT NULL;
