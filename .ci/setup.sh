#!/usr/bin/env bash
# Make .venv from exactly the locked hashes and install the project into it, editable.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/uv.sh"
echo "setup: environment in .venv (about 900 MB, once)" >&2
"$uv" venv --quiet --allow-existing --no-project --python "$python" .venv
"$uv" pip sync --quiet --python .venv --require-hashes --link-mode copy requirements-dev.lock
"$uv" pip install --quiet --python .venv --no-deps --no-build-isolation --editable .
