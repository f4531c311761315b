#!/bin/bash
# Makes the Python environment of tests/python, once, and prints the path of its interpreter.
#   tests/python/environment.sh          makes it unless it is there
#   tests/python/environment.sh --find   only looks for it; else Debian's /usr/bin/python3, with which many tests skip
# It lies in ~/.cache/paramd, under a name made of the requirements, so all build folders share it. It takes about 2 GB
# and four minutes. Where the packages cannot be fetched, the script says so, and the tests run with Debian's Python.
set -euo pipefail
cd "$(dirname "$0")"
debian=/usr/bin/python3
wanted=$($debian --version; cat requirements.txt integrations.txt)
folder=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/paramd/python-$(sha256sum <<< "$wanted" | cut -c 1-12)

if [ -e "$folder/complete" ]; then echo "$folder/bin/python3"; exit; fi
if [ "${1:-}" = --find ]; then echo "$debian"; exit; fi

fetch() { "$folder/bin/pip" install --quiet --retries 1 --timeout 30 "$@" >> "$folder/log" 2>&1; }

mkdir -p "${folder%/*}"
exec 9> "$folder.lock"
flock 9                                         # two builds at once: the second one waits for the first
if [ ! -e "$folder/complete" ]; then
    echo "making the Python environment of the tests in $folder" >&2
    rm -rf "$folder"
    if "$debian" -m venv "$folder" > /dev/null 2>&1 && fetch -r requirements.txt; then
        fetch -r integrations.txt || echo "integrations.txt could not be installed: $folder/log says why" >&2
        touch "$folder/complete"
    else
        echo "requirements.txt could not be installed ($folder/log says why): the tests run with $debian" >&2
        echo "$debian"
        exit
    fi
fi
echo "$folder/bin/python3"
