# Sourced by the other scripts: sets $python (a supported interpreter) and $uv (fetched into .tools when it is missing).
cd "$(dirname "${BASH_SOURCE[0]}")/.."

supported='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))'
python=
for candidate in python3 python3.13 python3.12 python3.11; do
  if "$candidate" -c "$supported" >/dev/null 2>&1; then python=$(command -v "$candidate"); break; fi
done
if [ -z "$python" ]; then
  echo "setup: no Python 3.11, 3.12 or 3.13 found on PATH; install one and run make again" >&2
  exit 2
fi

uv=$(command -v uv || true)
if [ -x .tools/bin/uv ]; then uv=.tools/bin/uv; fi
if [ -z "$uv" ]; then
  echo "setup: fetching uv into .tools" >&2
  if ! "$python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target .tools uv; then
    echo "setup: pip could not fetch uv; check the network, or put uv on PATH, and run make again" >&2
    exit 1
  fi
  uv=.tools/bin/uv
fi
