#!/bin/bash
# The manual pages are well-formed and name every command, and the shells complete commands, options, words and jobs.
set -euo pipefail
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
bin=${PARAMD_BIN:?the folder of paramctl} made=$PARAMD_BIN/../deploy/manual
[ -e "$made/paramctl.bash" ] || { echo "skip: no $made/paramctl.bash"; exit 77; }
fail() { echo "$*" >&2; exit 1; }

# mandoc finds nothing but the empty paragraphs that scdoc itself writes.
if command -v scdoc > /dev/null && command -v mandoc > /dev/null; then
    for page in "$made"/*.[1-9]; do
        findings=$(mandoc -Tlint -W warning "$page" | grep -v 'skipping paragraph macro' || true)
        [ -z "$findings" ] || fail "$findings"
    done
    text=$(mandoc -Tascii "$made/paramctl.1" | sed 's/.\x08//g')
    commands=$("$bin/paramctl" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\).*/\1/p')
    [ "$(wc -w <<< "$commands")" -gt 10 ] || fail "paramctl --help lists no commands: $commands"
    for command in $commands; do
        grep -q "^ *paramctl $command" <<< "$text" || fail "paramctl.1 does not have the command $command"
    done
else
    echo "scdoc or mandoc is not installed: the pages are not read"
fi

# shellcheck source=/dev/null
. "$made/paramctl.bash"
paramctl() { printf '{\n  "jobs": [\n    {\n      "name": "lin",\n      "step": 3\n    }\n  ]\n}\n'; }

# completes EXPECTED WORD...: what bash offers in place of the last word, sorted, begins with EXPECTED.
completes() {
    local expected=$1 offered
    COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2)) COMPREPLY=()
    _paramctl
    offered=$(printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort | paste -sd' ')
    [ "$offered" = "$expected" ] || fail "after \"${*:2}\" bash offers \"$offered\", expected \"$expected\""
}
completes "drain drop" paramctl dr
completes "json text wide" paramctl jobs -o ""
completes "json" paramctl --output j
completes "--watch" paramctl jobs --w
completes "--within" paramctl -s :7070 drain --wi
completes "lin" paramctl drop ""
completes "drain drop" paramctl help dr
completes "" paramctl set lin --from ""

if command -v zsh > /dev/null; then zsh -n "$made/_paramctl" || fail "zsh cannot read _paramctl"; fi
