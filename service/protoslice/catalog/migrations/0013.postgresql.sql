-- Objects have no writers with leases: one that is not published a day after `unpublished`, the time of its reservation,
-- is collected. Uploads that the upgrade interrupts have that day.

ALTER TABLE objects ADD COLUMN unpublished bigint;
UPDATE objects SET unpublished = (extract(epoch FROM transaction_timestamp()) * 1000000)::bigint
    WHERE writer IS NOT NULL;
DROP INDEX objects_writer;
ALTER TABLE objects DROP COLUMN writer;
CREATE INDEX objects_unpublished ON objects (unpublished) WHERE unpublished IS NOT NULL;
DROP TABLE writers;
