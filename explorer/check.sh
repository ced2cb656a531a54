#!/usr/bin/env bash
# The whole check of the page: types, tests of its engine, the committed page against its sources, tests in Chromium.
# Needs Node 20 with npm, and Chromium (Debian's package, or its path in CHROMIUM). Stops at the first that fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

npm ci --ignore-scripts
if grep -q '"resolved"' package-lock.json; then
  echo "package-lock.json names where packages were downloaded from; .npmrc leaves that out: npm install" >&2
  exit 1
fi
npm run typecheck
npm test
npm run build -- --check
npm run browser
