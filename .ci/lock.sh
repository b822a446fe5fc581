#!/usr/bin/env bash
# Resolve requirements.lock (what a node installs) and requirements-dev.lock (that and the tools). --check: fail if they would change.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/uv.sh"
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
cp requirements.lock requirements-dev.lock "$out" 2>/dev/null || true
compile() {
  "$uv" pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
    --python-version 3.11 --custom-compile-command "make lock" pyproject.toml "$@"
}
compile --output-file "$out/requirements.lock"
compile --group dev --constraint "$out/requirements.lock" --output-file "$out/requirements-dev.lock"
for file in requirements.lock requirements-dev.lock; do
  if [ "${1:-}" = --check ]; then
    cmp -s "$out/$file" "$file" || { echo "lock: $file is not current with pyproject.toml; run: make lock" >&2; exit 1; }
  else
    cp "$out/$file" "$file"
  fi
done
