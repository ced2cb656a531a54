#!/usr/bin/env bash
# The whole check of the pages: types, tests of the engine, the committed files against their sources, tests in Chromium.
# Needs Node 18 with npm, and Chromium (Debian's package, or its path in CHROMIUM); installs by apt what is missing.
# The explorer's own server runs in the environment of the repository (.venv, or PYTHON). Stops at the first that fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

needed=()
command -v npm > /dev/null || needed+=(nodejs npm)
[ -x "${CHROMIUM:-/usr/bin/chromium}" ] || needed+=(chromium)
if [ ${#needed[@]} -gt 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  install() { apt-get install -y -qq --no-install-recommends "${needed[@]}" > /dev/null; }
  install || { apt-get update -qq && install; }
fi

npm ci --ignore-scripts
if grep -q '"resolved"' package-lock.json; then
  echo "package-lock.json names where packages were downloaded from; .npmrc leaves that out: npm install" >&2
  exit 1
fi
npm run typecheck
npm test
npm run build -- --check
npm run browser
