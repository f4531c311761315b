#!/bin/bash
# The arrows between the rings, checked on the source text: who may include what, and how long a file may be.
# Prints each violation as file:line and exits 1 if there was one.
set -u
cd "$(dirname "$0")/.." || exit
violations=0

complain() { printf '%s\n' "$1"; violations=$((violations + 1)); }

# only PATTERN MAY... : lines matching PATTERN may stand only in files whose path matches one of the MAY expressions.
only() {
    local pattern=$1 what=$2 hit file allowed may
    shift 2
    while IFS= read -r hit; do
        file=${hit%%:*}
        allowed=no
        for may in "$@"; do [[ $file =~ $may ]] && allowed=yes; done
        [ $allowed = yes ] || complain "$hit   <- $what belongs in $*"
    done < <(grep -rnE --include='*.c' --include='*.h' "$pattern" server proto client include)
}

only '#include <uv\.h>'                       'libuv'          '^server/net/(uvloop|signals)\.h'
only '#include <pthread\.h>'                  'pthread'        '^server/[a-z]+\.[ch]$' '^client/[a-z]+\.[ch]$' \
    '^client/tools/'
only '#include <(cblas|lapacke)\.h>'          'BLAS'           '^server/math/' '^client/example/'
only '#include <ini\.h>'                      'INI parsing'    '^server/config[a-z_]*\.[ch]$'
only '#include <jansson\.h>'                  'JSON'           '^proto/safetensors' '^server/keep/manifest' \
    '^client/(ctl|tools|example)/'
only '#include <pcre2\.h>'                    'regular expressions' '^server/optim/pattern\.c'
only '#include "paramd\.pb-c\.h"'             'protobuf'       '^proto/' '^server/net/' '^client/'
only '#include <protobuf-c/'                  'protobuf'       '^proto/' '^server/net/' '^client/'
only '#pragma omp parallel'                   'a parallel region' '^server/optim/batch\.c' '^server/optim/clip\.c' \
    '^server/optim/optim\.c' '^server/store/'
only '\bsetenv\(|\bexecv?[a-z]*\('            're-execution'   '^server/main\.c' '^client/(ctl|tools)/'

# none FOLDERS PATTERN WHAT [FILE] : the pattern must not occur there at all, but in FILE.
none() {
    local hit
    while IFS= read -r hit; do
        [ "${hit%%:*}" = "${4:-}" ] || complain "$hit   <- no $3 in $1"
    done < <(grep -rnE --include='*.c' --include='*.h' "$2" $1 2> /dev/null)
}

# segment.c opens its own memory again, to read it alone.
none 'server/math server/optim server/store' '\b(fopen|open|openat|read|write|pread|pwrite|unlink|rename|fsync)\(' \
    'files' server/math/segment.c
none 'server/math server/optim server/store' '\b(socket|connect|bind|accept4?|send|sendmsg|recv|recvmsg)\('        \
    'sockets'
none 'server/math server/optim server/store' '\b(clock_gettime|gettimeofday|time|nanosleep|usleep)\('              \
    'clocks'
none 'server/math server/optim server/store' '\b(rand|random|getrandom|drand48)\('                                 \
    'randomness'
none 'server/keep'                           '\b(clock_gettime|gettimeofday|time|nanosleep|usleep)\('              \
    'clocks'
none 'server/net'                            '\b(fopen|fprintf\(f|opendir)\('                                      \
    'files on the loop thread'
none 'server/net'                            'pd_accumulate|pd_convert|pd_batch_run|pd_all_finite|cblas_'          \
    'arithmetic on the loop thread'
none 'server/math server/optim server/store server/keep proto' '#include <pthread\.h>|stdatomic\.h'                \
    'threads'

# inward FOLDER FORBIDDEN : a ring does not include the headers of rings further out. A header of the same name beside
# the file is its own.
inward() {
    local names header hit file
    names=$(printf '%s\n' $2 | sed 's|.*/||' | paste -sd '|')
    while IFS= read -r hit; do
        header=${hit##*#include \"} header=${header%%\"*}
        file=${hit%%:*}
        [ -e "${file%/*}/$header" ] || complain "$hit   <- $header is in a ring further out"
    done < <(grep -rnE --include='*.c' --include='*.h' "#include \"($names)\"" "$1" 2> /dev/null)
}
shopt -s nullglob
inward server/math  \
    "$(echo server/optim/*.h server/store/*.h server/store/*/*.h server/net/*.h server/*.h proto/*.h client/*.h)"
inward server/optim "$(echo server/store/*.h server/store/*/*.h server/net/*.h server/*.h proto/*.h client/*.h)"
inward server/store "$(echo server/keep/*.h server/net/*.h server/*.h proto/*.h client/*.h)"
# Files: the keeper's ring knows the wire's safetensors, and of the store only checkpoints and entries in memory.
inward server/keep  "$(echo server/optim/*.h server/store/*.h server/store/*/*.h server/net/*.h server/*.h client/*.h \
    | tr ' ' '\n' | grep -vE '/(kept|logged)\.h$')"
inward server/net   "$(echo server/keep/*.h)"
# The layers of the store, innermost first: base, round, step, job, image; store.c alone knows all of them.
inward server/store/base  "$(echo server/store/{round,step,job,image}/*.h server/store/*.h)"
inward server/store/round "$(echo server/store/{step,job,image}/*.h server/store/*.h)"
inward server/store/step  "$(echo server/store/{job,image}/*.h server/store/*.h)"
inward server/store/job   "$(echo server/store/image/*.h server/store/*.h)"
inward server/store/image "$(echo server/store/*.h)"
inward proto        "$(echo server/optim/*.h server/store/*.h server/store/*/*.h server/net/*.h server/*.h client/*.h)"
# What a job needs is counted in one place, optimizers are described in one, limits of the machine are read in one, and
# roles in one: paramctl asks too.
counting='footprint|job_keys|optimizers|host|numa|roles|roles_file'
inward client/ctl   "$(echo server/optim/*.h client/tools/*/*.h)"      # paramctl links no arithmetic
inward client       \
    "$(echo server/store/*.h server/store/*/*.h server/net/*.h server/*.h | tr ' ' '\n' | grep -vE "/($counting)\.h$")"

# No module includes or calls itself by way of others.
circles=$(tests/circles.py . server client proto) || complain "$circles"
echo "$circles" | tail -n 1

# A file's name says where it is: a stem (the name without .c or .h) is used in one folder only.
while IFS= read -r stem; do complain "$stem   <- files of this name in two folders"; done < <(
    find server client proto tests -name '*.[ch]' -printf '%h %f\n' | sed 's/\.[ch]$//' | sort -u | cut -d' ' -f2 \
        | sort | uniq -d)
while IFS= read -r name; do complain "$name   <- two files of this name"; done < <(
    find server client proto include tests deploy -name '*.[ch]' -printf '%f\n' | sort | uniq -d)

# Files stay short enough to be read at once.
while read -r lines file; do
    case $file in tests/*) most=700 ;; *) most=600 ;; esac      # a test file begins with its fixture
    [ "$lines" -le $most ] || complain "$file:$lines   <- a file has at most $most lines"
done < <(find server proto client include tests -name '*.[ch]' -exec wc -l {} + | grep -v ' total$')

# Only the folders of the design.
for entry in */; do
    case ${entry%/} in server|client|proto|include|tests|deploy|build) ;; *) complain \
        "$entry   <- not a top-level folder of the design" ;; esac
done

if [ $violations -gt 0 ]; then echo "$violations violations"; exit 1; fi
echo "layering holds"
