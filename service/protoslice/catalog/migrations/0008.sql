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
CREATE INDEX audit_at ON audit (space, at, number);
CREATE INDEX audit_who ON audit (space, who, at, number);
CREATE INDEX audit_what ON audit (space, what, at, number);
CREATE INDEX audit_subject ON audit (space, subject, at, number);

-- Backups that are being made: until they expire, no bytes are deleted.
CREATE TABLE holds (
    id {text} PRIMARY KEY,
    expires bigint NOT NULL
) {composite};
