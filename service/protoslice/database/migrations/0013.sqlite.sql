-- Objects have no writers with leases: one that is not published a day after `unpublished`, the time of its reservation,
-- is collected. Uploads that the upgrade interrupts have that day.

ALTER TABLE objects ADD COLUMN unpublished bigint;
UPDATE objects SET unpublished = CAST(strftime('%s', 'now') AS integer) * 1000000 WHERE writer IS NOT NULL;
DROP INDEX objects_writer;
ALTER TABLE objects DROP COLUMN writer;
CREATE INDEX objects_unpublished ON objects (unpublished) WHERE unpublished IS NOT NULL;
DROP TABLE writers;

-- SQLite never loses the answer to COMMIT.

DROP TABLE changes;

-- Events on their way have a column for each fact, and are sent as they are stored. A damaged one cannot be sent.

CREATE TABLE deliveries (
    hook {text} NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    id {text} NOT NULL,
    event {text} NOT NULL,
    dead smallint NOT NULL,
    written bigint NOT NULL,
    due bigint NOT NULL,
    attempts bigint NOT NULL,
    error {text} NOT NULL,
    PRIMARY KEY (hook, id)
);
INSERT INTO deliveries (hook, id, event, dead, written, due, attempts, error)
SELECT hook, id, json_extract(body, '$.event'), dead, CAST(json_extract(body, '$.written') * 1000000 AS integer), due,
    coalesce(CAST(json_extract(body, '$.attempts') AS integer), 0), coalesce(json_extract(body, '$.error'), '')
FROM letters WHERE CASE WHEN json_valid(body) THEN
    json_type(body, '$.event') = 'object' AND json_type(body, '$.written') IN ('integer', 'real')
END;
DROP TABLE letters;
CREATE INDEX deliveries_due ON deliveries (due) WHERE dead = 0;
CREATE INDEX deliveries_order ON deliveries (hook, dead, id);
