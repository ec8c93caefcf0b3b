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
