#!/bin/bash
# Makes the secrets of deploy/docker-compose.yml and of deploy/kubernetes, once:
#   deploy/secrets.sh [FOLDER]        [deploy/secrets]
#   tokens         the daemon's file: a token for operators, and one for workers
#   worker-token   the workers' file: their own token
#   http-token     who reads metrics and the dashboard shows it
#   roles          operators may do everything, workers may train (deploy/README.md, "Say who may do what")
# Files that are there already stay. They belong to the user of the images (10001), who alone may read them, so this
# needs root. paramctl makes the tokens: $PARAMCTL, else the one of the build tree, else the one on the PATH.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; exit ;; esac
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/secrets}
user=${PARAMD_USER:-10001:10001}

paramctl=${PARAMCTL:-$here/../build/release/bin/paramctl}
[ -x "$paramctl" ] || paramctl=$(command -v paramctl) || {
    echo "secrets.sh: there is no paramctl: build it, install the package paramd, or set PARAMCTL" >&2
    exit 1
}
paramctl=$(realpath "$paramctl")

umask 077
mkdir -p "$folder"
cd "$folder"
if [ ! -s tokens ]; then
    { "$paramctl" token new operator; "$paramctl" token new worker; } > tokens.new
    mv tokens.new tokens
fi
[ -s worker-token ] || grep '^worker:' tokens > worker-token
[ -s http-token ] || od -An -N 32 -tx1 /dev/urandom | tr -d ' \n' > http-token
[ -s roles ] || printf 'token:operator  admin  *\ntoken:worker    push   *\n' > roles
chmod 0400 tokens worker-token http-token roles
chown "$user" . tokens worker-token http-token roles || {
    echo "secrets.sh: run it as root, so that the files can belong to $user" >&2
    exit 1
}
echo "$folder: tokens, worker-token, http-token, roles"
