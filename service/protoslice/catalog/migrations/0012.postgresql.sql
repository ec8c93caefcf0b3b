-- Search for parts of names of repositories, which have no names in `names` before their first files.

CREATE INDEX repositories_trigrams ON repositories USING gin ((space || chr(10) || lower(name)) {trigrams})
    WHERE protocol IN ('hub', 'oci');
