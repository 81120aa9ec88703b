#!/usr/bin/env bash
# Installs the servers that the tests use, from Debian's packages, and only what is missing. Needs root and apt-get; else it says what it skips.
# The tests start servers of their own on free ports: nothing is left running here, and nothing that ran before is touched.
set -euo pipefail

# file the tests look for | package | the service that the package would start ("-": none)
SERVICES="
/usr/lib/postgresql/15/bin/postgres  postgresql-15         postgresql
/usr/sbin/pgbouncer                  pgbouncer             pgbouncer
/usr/bin/etcd                        etcd-server           etcd
/usr/bin/redis-server                redis-server          redis-server
/usr/bin/java                        default-jre-headless  -
/usr/share/java/zookeeper.jar        libzookeeper-java     -
"

say() { printf 'services: %s\n' "$*" >&2; }

missing=() started_by_apt=()
while read -r program package service; do
    [ -n "$program" ] && [ ! -e "$program" ] || continue
    missing+=("$package")
    # A service that exists under this name already is somebody else's.
    [ "$service" = - ] || [ -e "/etc/init.d/$service" ] || started_by_apt+=("$service")
done <<<"$SERVICES"

[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    say "not root, or no apt-get: skipping ${missing[*]}; the tests that need them are skipped too (with CI=true they fail)"
    exit 0
fi

# invoke-rc.d asks this file whether it may start a service; 101 is no.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "$1" >/dev/null; }
updated=""
for package in "${missing[@]}"; do
    say "installing $package"
    install "$package" 2>/dev/null && continue
    [ -n "$updated" ] || { apt-get update -qq && updated=yes; }
    install "$package" || say "$package cannot be installed: the tests that need it are skipped (with CI=true they fail)"
done

# Where an existing policy allowed it, stop what apt has just started.
for service in "${started_by_apt[@]}"; do
    if [ -e "/etc/init.d/$service" ] && service "$service" status >/dev/null 2>&1; then
        say "stopping $service, which its installation started"
        service "$service" stop >/dev/null
    fi
done
