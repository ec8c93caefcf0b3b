-- Stores, their objects and tags, and what spaces hold.
-- An object is bytes in the storage. While its row exists it may be referenced: the collector deletes rows, not bytes.

DROP TABLE derived;

CREATE TABLE spaces (
    name {text} PRIMARY KEY,
    created bigint NOT NULL,
    quota_bytes bigint,
    quota_stores bigint,
    quota_open_uploads bigint,
    quota_requests bigint
) {composite};
INSERT INTO spaces (name, created) VALUES ('default', 0);

-- Sums are spread over slots: with one row, all commits of a space would wait for each other.
CREATE TABLE usage (
    space {text} NOT NULL,
    slot smallint NOT NULL,
    stored_bytes bigint NOT NULL,
    stores bigint NOT NULL,
    logical_bytes bigint NOT NULL,
    PRIMARY KEY (space, slot)
) {composite};

-- Processes that reserve objects. A lease that has ended is doubted first: a clock may have been set forward.
CREATE TABLE writers (
    id {text} PRIMARY KEY,
    expires bigint NOT NULL,
    doubted bigint
) {composite};
CREATE INDEX writers_expires ON writers (expires);

-- `size` is null until the object is published, and for derived facts, which do not count for quotas. The collector
-- looks at an object that is `due`.
CREATE TABLE objects (
    space {text} NOT NULL,
    id bigint NOT NULL,
    key {text} NOT NULL,
    size bigint,
    writer {text},
    due bigint,
    PRIMARY KEY (space, id)
) {composite};
CREATE INDEX objects_due ON objects (due) WHERE due IS NOT NULL;
CREATE INDEX objects_writer ON objects (writer) WHERE writer IS NOT NULL;

-- Bytes to be deleted. Those of an object that was never published are deleted twice: a stalled write may come late.
CREATE TABLE trash (
    number {id},
    key {text} NOT NULL,
    sums smallint NOT NULL,
    passes smallint NOT NULL,
    due bigint NOT NULL
);
CREATE INDEX trash_due ON trash (due);

-- A row is one generation of a store: sending a removed store again makes another. `held` are bytes of its files that are
-- in the manifest, `tags` those removed with it.
CREATE TABLE stores (
    space {text} NOT NULL,
    id bigint NOT NULL,
    digest {text} NOT NULL,
    type {text},
    size bigint NOT NULL,
    held bigint NOT NULL,
    created bigint NOT NULL,
    weight bigint NOT NULL,
    manifest {bytes} NOT NULL,
    deleted bigint,
    tags {text},
    PRIMARY KEY (space, id)
);
CREATE UNIQUE INDEX stores_digest ON stores (space, digest) WHERE deleted IS NULL;
CREATE INDEX stores_created ON stores (space, created, id) WHERE deleted IS NULL;
CREATE INDEX stores_type ON stores (space, type, created, id) WHERE deleted IS NULL;
CREATE INDEX stores_removed ON stores (space, digest, deleted) WHERE deleted IS NOT NULL;
CREATE INDEX stores_deleted ON stores (deleted) WHERE deleted IS NOT NULL;

CREATE TABLE store_objects (
    space {text} NOT NULL,
    store bigint NOT NULL,
    object bigint NOT NULL,
    PRIMARY KEY (space, store, object),
    FOREIGN KEY (space, store) REFERENCES stores (space, id) ON DELETE CASCADE,
    FOREIGN KEY (space, object) REFERENCES objects (space, id)
) {composite};
CREATE INDEX store_objects_object ON store_objects (space, object);

-- Files of 1 MiB or more, by digest; `n` is their number in the manifest.
CREATE TABLE file_digests (
    space {text} NOT NULL,
    sha256 {bytes} NOT NULL,
    store bigint NOT NULL,
    n bigint NOT NULL,
    PRIMARY KEY (space, sha256, store, n),
    FOREIGN KEY (space, store) REFERENCES stores (space, id) ON DELETE CASCADE
) {composite};
CREATE INDEX file_digests_store ON file_digests (space, store);

-- Pieces of stores, a sample of them, by digest.
CREATE TABLE pieces (
    space {text} NOT NULL,
    digest {bytes} NOT NULL,
    store bigint NOT NULL,
    PRIMARY KEY (space, digest, store),
    FOREIGN KEY (space, store) REFERENCES stores (space, id) ON DELETE CASCADE
) {composite};
CREATE INDEX pieces_store ON pieces (space, store);

-- Facts derived from stores: `data`, or an object of the storage.
CREATE TABLE derived (
    space {text} NOT NULL,
    store bigint NOT NULL,
    name {text} NOT NULL,
    made bigint NOT NULL,
    data {bytes},
    object bigint,
    PRIMARY KEY (space, store, name),
    FOREIGN KEY (space, store) REFERENCES stores (space, id) ON DELETE CASCADE,
    FOREIGN KEY (space, object) REFERENCES objects (space, id)
);
CREATE INDEX derived_object ON derived (space, object) WHERE object IS NOT NULL;

-- The collector looks for uploads in all spaces. Those that exist refer to objects that have no rows.
DELETE FROM uploads;
DROP INDEX uploads_expires;
DROP INDEX uploads_gone;
CREATE INDEX uploads_expires ON uploads (expires) WHERE state <> 'gone';
CREATE INDEX uploads_gone ON uploads (modified) WHERE state = 'gone';

CREATE TABLE upload_objects (
    space {text} NOT NULL,
    upload {text} NOT NULL,
    object bigint NOT NULL,
    PRIMARY KEY (space, upload, object),
    FOREIGN KEY (space, upload) REFERENCES uploads (space, id),
    FOREIGN KEY (space, object) REFERENCES objects (space, id)
) {composite};
CREATE INDEX upload_objects_object ON upload_objects (space, object);

-- Xorbs of an upload that is a session of Xet, by hash.
CREATE TABLE xorbs (
    space {text} NOT NULL,
    upload {text} NOT NULL,
    name {text} NOT NULL,
    size bigint NOT NULL,
    record {bytes} NOT NULL,
    PRIMARY KEY (space, upload, name),
    FOREIGN KEY (space, upload) REFERENCES uploads (space, id) ON DELETE CASCADE
);

-- Changes and who made them. Rows are kept longer than their subjects, so there are no foreign keys.
CREATE TABLE audit (
    number {id},
    at bigint NOT NULL,
    change {bytes} NOT NULL,
    space {text} NOT NULL,
    who {text} NOT NULL,
    what {text} NOT NULL,
    subject {text} NOT NULL,
    detail {text} NOT NULL
);
CREATE INDEX audit_space ON audit (space, at);
