#!/bin/bash
# Runs the linters on the whole tree and exits 1 if one of them finds something:
#   the layout of C files by clang-format (.clang-format; `tests/lint.sh --fix` applies it)
#   mistakes in the product's C files by clang-tidy (.clang-tidy) and by cppcheck
#   scripts by shellcheck, and the spelling of all texts by codespell
# tests/lint.sh [--fix] [BUILD]     BUILD: a configured build folder, for compile_commands.json [build/release]
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
fix=no
if [ "${1:-}" = --fix ]; then fix=yes; shift; fi
build=${1:-build/release}
if [ ! -f "$build/compile_commands.json" ]; then
    echo "$build/compile_commands.json is not there: run \`cmake --preset release\` first, or name another folder" >&2
    exit 2
fi
for tool in clang-format-14 clang-tidy-14 cppcheck shellcheck codespell; do
    command -v $tool > /dev/null || { echo "$tool is not installed (deploy/packages.txt, section lint)" >&2; exit 77; }
done
mapfile -t every < <(find server client proto include tests -name '*.[ch]' | sort)
mapfile -t product < <(find server client proto -name '*.c' | sort)
mapfile -t scripts < <(find deploy tests -name '*.sh' | sort)
mapfile -t texts < <(find . -path ./build -prune -o -name __pycache__ -prune -o -path ./.git -prune \
    -o -path ./tests/golden/traces -prune -o \
    -type f -not -name '*.svg' -not -name LICENSE -print | sort)
jobs=$(nproc) failed=()

# check NAME COMMAND...: runs the command, and shows what it says if it fails.
check() {
    local name=$1 output
    if output=$("${@:2}" 2>&1); then
        echo "$name: no findings"
    else
        printf '%s\n%s: findings\n' "$output" "$name"
        failed+=("$name")
    fi
}

# each COMMAND...: with the names of the standard input, on all cores.
each() { xargs -P "$jobs" -n 12 "$@"; }

layout() {
    if [ $fix = yes ]; then clang-format-14 -i "${every[@]}"; else clang-format-14 --dry-run -Werror "${every[@]}"; fi
}
# gcc's own warnings are the compiler's business: -w. Only lines that name a finding are shown.
tidy() {
    local found
    found=$(printf '%s\n' "${product[@]}" | each clang-tidy-14 -p "$build" --quiet --extra-arg=-w 2> /dev/null |
        grep -E '(error|warning): ' | sort -u)
    [ -z "$found" ] || { echo "$found"; return 1; }
}
# Suppressed everywhere: checks that do not understand designated initializers, attributes, or shifts that gcc defines.
# Suppressed in one file: findings that were looked at and are none.
cpp() {
    local quiet=() id
    for id in uninitvar legacyUninitvar unknownMacro internalAstError invalidPointerCast shiftTooManyBitsSigned \
        unknownEvaluationOrder missingIncludeSystem \
        invalidFunctionArg:server/tools/replay/replay_net.c zerodiv:server/tools/replay/replay_net.c \
        autoVariables:client/lib/io.c \
        nullPointer:server/tools/replay/verdict.c nullPointerRedundantCheck:server/net/output.c \
        nullPointerArithmeticRedundantCheck:server/math/root_basis.c memleak:proto/message.c; do
        quiet+=("--suppress=$id")
    done
    cppcheck -j "$jobs" --enable=warning,performance,portability --std=c11 --quiet --error-exitcode=1 -I include \
        "${quiet[@]}" \
        --template='{file}:{line}: {id}: {message}' "${product[@]}"
}
# "\tThe" is a tab and a word, PullRequest a message, and `upto` a bound. The others are misspelt on purpose, in tests
# of error texts.
words() { codespell --ignore-words-list=tthe,upto,pullrequest,agregate,oder "${texts[@]}"; }

check clang-format layout
check clang-tidy tidy
check cppcheck cpp
check shellcheck shellcheck -x -S warning "${scripts[@]}"
check codespell words
if [ ${#failed[@]} -gt 0 ]; then echo "failed: ${failed[*]}"; exit 1; fi
