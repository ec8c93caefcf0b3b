-- Resumable uploads. `epoch` counts changes of an upload: a writer names the one that it saw.

CREATE TABLE uploads (
    space {text} NOT NULL,
    id {text} NOT NULL,
    client {text} NOT NULL,
    state {text} NOT NULL,
    used smallint NOT NULL,
    epoch bigint NOT NULL,
    expires bigint NOT NULL,
    modified bigint NOT NULL,
    record {text} NOT NULL,
    PRIMARY KEY (space, id)
);
CREATE INDEX uploads_open ON uploads (space, client, expires) WHERE state IN ('open', 'complete') AND used = 0;
CREATE INDEX uploads_expires ON uploads (space, expires) WHERE state <> 'gone';
CREATE INDEX uploads_gone ON uploads (space, modified) WHERE state = 'gone';

CREATE TABLE upload_parts (
    space {text} NOT NULL,
    upload {text} NOT NULL,
    n bigint NOT NULL,
    location {text} NOT NULL,
    PRIMARY KEY (space, upload, n),
    FOREIGN KEY (space, upload) REFERENCES uploads (space, id) ON DELETE CASCADE
);
