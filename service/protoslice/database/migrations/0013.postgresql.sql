-- Objects have no writers with leases: one that is not published a day after `unpublished`, the time of its reservation,
-- is collected. Uploads that the upgrade interrupts have that day.

ALTER TABLE objects ADD COLUMN unpublished bigint;
UPDATE objects SET unpublished = (extract(epoch FROM transaction_timestamp()) * 1000000)::bigint
    WHERE writer IS NOT NULL;
DROP INDEX objects_writer;
ALTER TABLE objects DROP COLUMN writer;
CREATE INDEX objects_unpublished ON objects (unpublished) WHERE unpublished IS NOT NULL;
DROP TABLE writers;

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
CREATE FUNCTION pg_temp.readable(body text) RETURNS json LANGUAGE plpgsql AS $$
    BEGIN RETURN body::json; EXCEPTION WHEN others THEN RETURN NULL; END
$$;
INSERT INTO deliveries (hook, id, event, dead, written, due, attempts, error)
SELECT hook, id, body ->> 'event', dead, ((body ->> 'written')::numeric * 1000000)::bigint, due,
    CASE WHEN body ->> 'attempts' ~ '^\d{1,9}$' THEN (body ->> 'attempts')::bigint ELSE 0 END,
    coalesce(body ->> 'error', '')
FROM (SELECT hook, id, dead, due, pg_temp.readable(body) AS body FROM letters) read
WHERE json_typeof(body) = 'object' AND json_typeof(body -> 'event') = 'object'
    AND json_typeof(body -> 'written') = 'number';
DROP FUNCTION pg_temp.readable(text);
DROP TABLE letters;
CREATE INDEX deliveries_due ON deliveries (due) WHERE dead = 0;
CREATE INDEX deliveries_order ON deliveries (hook, dead, id);
