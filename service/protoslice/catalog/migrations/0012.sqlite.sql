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
