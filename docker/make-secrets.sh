#!/bin/sh
# Makes the secrets of compose.s3.yaml and compose.mlflow.yaml in docker/secrets, or in the folder that is given; keeps those
# that are there. Only root and the owner can enter the folder; containers, whose users differ, read the files.
set -eu
folder=${1:-$(dirname "$0")/secrets}
mkdir -p "$folder"
chmod 700 "$folder"
cd "$folder"
keep() { [ -s "$1" ] || { cat >"$1.new" && chmod 444 "$1.new" && mv "$1.new" "$1"; }; }
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
random | keep database-password
random | keep mlflow-password
random | keep s3-secret
printf 'postgresql://protoslice:%s@postgres/protoslice' "$(cat database-password)" | keep database
printf '{"aws_endpoint": "http://s3:7070", "aws_region": "us-east-1", "aws_virtual_hosted_style_request": "false",
"aws_access_key_id": "protoslice", "aws_secret_access_key": "%s"}' "$(cat s3-secret)" | keep storage-options
