#!/bin/bash
# Measures plain_step: the step time of a plain job in this build, over that in the build of an earlier commit. Builds
# the commit in a work tree of its own (build/before), with this tree's figure_plain_step.c, and lets both take turns.
# Prints VALUE, a tab, and a note. The work tree stays, so that the next run need not build it again.
# Usage: tests/bench/plain_step.sh [COMMIT [SECONDS]]     COMMIT [fe362bd6, the last one with a closed world only];
#                                                         SECONDS of each shape of a job [60]
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin           # Debian's own tools, whatever else lies on the path
commit=${1:-fe362bd6} seconds=${2:-60} before=$PWD/build/before

git worktree prune
[ -e "$before/.git" ] || git worktree add --quiet --detach "$before" "$commit"
git -C "$before" checkout --quiet --force --detach "$commit"
cp tests/bench/figure_plain_step.c "$before/tests/bench/"
grep -q figure_plain_step "$before/tests/bench/CMakeLists.txt" || cat >> "$before/tests/bench/CMakeLists.txt" << 'END'
add_executable(figure_plain_step figure_plain_step.c)
target_compile_definitions(figure_plain_step PRIVATE _GNU_SOURCE)
target_link_libraries(figure_plain_step PRIVATE pd_figure)
END
{
    cd "$before"
    cmake --preset release
    cmake --build build/release --target paramd figure_plain_step
    cd -
    cmake --build build/release --target paramd figure_plain_step
} > "$before.log" 2>&1 || { tail -20 "$before.log" >&2; exit 1; }
build/release/bin/figure_plain_step "$before/build/release/bin/figure_plain_step" "$seconds"
