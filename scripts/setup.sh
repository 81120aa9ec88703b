#!/usr/bin/env bash
# Makes .venv in the project folder, with the locked versions of everything. Usage: scripts/setup.sh [PYTHON]
# What is in .venv already stays, so running it again is cheap and harms nothing that you installed there by hand.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

# First choice: new enough and able to make a virtual environment. A name on PATH proves nothing: version managers put
# shims there for interpreters that are not active.
choose() {
    local candidate fallback=""
    for candidate in ${1:-python3.13 python3.12 python3.11 python3}; do
        new_enough "$candidate" || continue
        if has_venv "$candidate"; then
            echo "$candidate"
            return
        fi
        fallback=${fallback:-$candidate}
    done
    echo "$fallback"
}

make_venv() {
    local python=$1 version
    if has_venv "$python"; then
        "$python" -m venv .venv
        return
    fi
    version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    if command -v uv >/dev/null; then
        say "$python has no ensurepip; making .venv with $(command -v uv)"
        uv venv --quiet --python "$python" .venv
    elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "$python has no ensurepip; installing $version-venv"
        install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Dpkg::Use-Pty=0 "$version-venv" >/dev/null; }
        install 2>/dev/null || { apt-get update -qq && install; }
        "$python" -m venv .venv
    else
        say "$python cannot make a virtual environment: its venv and ensurepip modules are not installed."
        say "Run 'sudo apt-get install $version-venv' (Debian, Ubuntu), or install uv and put it on your PATH; then run 'make setup' again."
        exit 1
    fi
}

if [ ! -x .venv/bin/python ] || ! new_enough .venv/bin/python; then
    python=$(choose "${1:-}")
    if [ -z "$python" ]; then
        say "no Python 3.11 or newer${1:+ ($1 is not one)}. Install one, or name it: make setup PYTHON=/path/to/python3"
        exit 1
    fi
    say "making .venv with $python ($("$python" --version))"
    make_venv "$python"
fi

uv=.venv/bin/uv
if [ ! -x "$uv" ]; then
    if .venv/bin/python -m pip --version >/dev/null 2>&1; then
        .venv/bin/python -m pip install --quiet --disable-pip-version-check uv
    else
        uv=uv # .venv was made by it
    fi
fi
# The system's certificates, where it has any: they may name a proxy that the list inside uv does not know.
for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
    [ ! -s "$bundle" ] || export UV_SYSTEM_CERTS=1
done
# --inexact: uv itself lives in .venv and is not part of the lock.
UV_PROJECT_ENVIRONMENT=.venv "$uv" sync --quiet --frozen --inexact --all-extras --group dev
say "ready: .venv ($(.venv/bin/python --version))"
