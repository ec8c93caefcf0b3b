-- Letters of webhooks; repositories, their names and commits, and files that they keep.

CREATE TABLE letters (
    hook {text} NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    id {text} NOT NULL,
    dead smallint NOT NULL,
    due bigint NOT NULL,
    body {text} NOT NULL,
    PRIMARY KEY (hook, id)
);
CREATE INDEX letters_due ON letters (due) WHERE dead = 0;
CREATE INDEX letters_order ON letters (hook, dead, id);

-- Each protocol has repositories of its own: those of Hugging Face, of OCI, and one for the artifacts of MLflow.
CREATE TABLE repositories (
    space {text} NOT NULL,
    id bigint NOT NULL,
    protocol {text} NOT NULL,
    name {text} NOT NULL,
    created bigint NOT NULL,
    PRIMARY KEY (space, id),
    UNIQUE (space, protocol, name)
) {composite};

CREATE TABLE commits (
    space {text} NOT NULL,
    repository bigint NOT NULL,
    id {text} NOT NULL,
    digits {text} NOT NULL,
    store {text},
    parent {text},
    number bigint NOT NULL,
    title {text} NOT NULL,
    message {text} NOT NULL,
    author {text} NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (space, repository, id),
    FOREIGN KEY (space, repository) REFERENCES repositories (space, id) ON DELETE CASCADE
);
CREATE INDEX commits_digits ON commits (space, repository, digits, number);
CREATE INDEX commits_store ON commits (space, store) WHERE store IS NOT NULL;

-- Names that point at content. `version` is random, and another after each change; that of a store made of a folder is
-- the digest of its files. `changed` is set while a folder has changes of which no store was made.
CREATE TABLE names (
    space {text} NOT NULL,
    repository bigint NOT NULL,
    kind {text} NOT NULL,
    name {text} NOT NULL,
    store {text},
    commit_id {text},
    version {bytes} NOT NULL,
    updated bigint NOT NULL,
    changed bigint,
    PRIMARY KEY (space, repository, kind, name),
    FOREIGN KEY (space, repository) REFERENCES repositories (space, id) ON DELETE CASCADE,
    FOREIGN KEY (space, repository, commit_id) REFERENCES commits (space, repository, id) ON DELETE CASCADE
) {composite};
CREATE INDEX names_store ON names (space, store) WHERE store IS NOT NULL;
CREATE INDEX names_changed ON names (changed) WHERE changed IS NOT NULL;
CREATE INDEX names_commit ON names (space, repository, commit_id) WHERE commit_id IS NOT NULL;

-- Files of a repository that are in no commit: the bytes, or the upload or the file of a store that has them.
CREATE TABLE kept_files (
    space {text} NOT NULL,
    repository bigint NOT NULL,
    kind {text} NOT NULL,
    name {text} NOT NULL,
    folder {text},
    size bigint NOT NULL,
    data {bytes},
    upload {text},
    store {text},
    path {text},
    version {bytes} NOT NULL,
    updated bigint NOT NULL,
    PRIMARY KEY (space, repository, kind, name),
    FOREIGN KEY (space, repository) REFERENCES repositories (space, id) ON DELETE CASCADE
);
CREATE INDEX kept_files_folder ON kept_files (space, repository, folder) WHERE folder IS NOT NULL;
CREATE INDEX kept_files_store ON kept_files (space, store) WHERE store IS NOT NULL;
CREATE INDEX kept_files_upload ON kept_files (space, updated) WHERE upload IS NOT NULL;
