"""`s3://`, `gs://` and `az://`: objects of a bucket."""
