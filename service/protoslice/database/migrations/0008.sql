-- Lists of stores by name, size, type and uploader; the audit by who, what and subject; backups.

ALTER TABLE stores ADD COLUMN uploader {text} NOT NULL DEFAULT '';
DROP INDEX stores_type;
CREATE INDEX stores_type ON stores (space, (coalesce(type, '')), created, id) WHERE deleted IS NULL;
CREATE INDEX stores_size ON stores (space, size, id) WHERE deleted IS NULL;
CREATE INDEX stores_uploader ON stores (space, uploader, created, id) WHERE deleted IS NULL;

-- `label` is the name as users see it, with its space in front, for searches; null for a name that is not shown.
ALTER TABLE names ADD COLUMN label {text};
UPDATE names SET label = space || '
' || lower((
    SELECT CASE r.protocol
        WHEN 'stores' THEN names.name
        WHEN 'hub' THEN r.name || '@' || names.name
        WHEN 'oci' THEN r.name || ':' || names.name
        ELSE 'mlflow-artifacts:/' || names.name
    END FROM repositories r WHERE r.space = names.space AND r.id = names.repository
)) WHERE kind <> 'folder';

DROP INDEX audit_space;
-- `n` counts the rows of one change. Places in the audit are made of it and the change, which is random: a number would
-- tell how much other spaces change.
ALTER TABLE audit ADD COLUMN n bigint NOT NULL DEFAULT 0;
CREATE INDEX audit_at ON audit (space, at, change, n);
CREATE INDEX audit_who ON audit (space, who, at, change, n);
CREATE INDEX audit_what ON audit (space, what, at, change, n);
CREATE INDEX audit_subject ON audit (space, subject, at, change, n);

-- The backup that is being made: until it ends or expires, no bytes are deleted.
CREATE TABLE holds (
    id {text} PRIMARY KEY,
    owner {text} NOT NULL,
    expires bigint NOT NULL
) {composite};
