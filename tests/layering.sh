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
only '#include <pthread\.h>'                  'pthread'        '^server/(threads|host|settings)/' '^client/lib/' \
    '^client/ctl/' '^client/tools/(cluster|ask_all)\.c' '^server/tools/'
only '#include <(cblas|lapacke)\.h>'          'BLAS'           '^server/math/' '^client/example/'
only '#include <ini\.h>'                      'INI parsing'    '^server/settings/config'
only '#include <jansson\.h>'                  'JSON'           '^proto/safetensors' '^server/keep/manifest' \
    '^client/(ctl|tools|example)/' '^server/tools/' '^server/cluster/'
only '#include <curl/'                        'libcurl'        '^server/cluster/curl\.h'
only '#include <pcre2\.h>'                    'regular expressions' '^server/optim/factor_rules\.c'
only '#include "paramd\.pb-c\.h"'             'protobuf'       '^proto/' '^server/(net|tools)/' '^client/'
only '#include <protobuf-c/'                  'protobuf'       '^proto/' '^server/(net|tools)/' '^client/'
only '#pragma omp parallel'                   'a parallel region' '^server/optim/batch\.c' '^server/optim/clip\.c' \
    '^server/optim/optim\.c' '^server/store/'
only '\bsetenv\(|\bexecv?[a-z]*\('            're-execution'   '^server/main\.c' '^client/(ctl|tools)/' '^server/tools/'

# none FOLDERS PATTERN WHAT [FILE] : the pattern must not occur there at all, but in FILE.
none() {
    local hit
    while IFS= read -r hit; do
        [ "${hit%%:*}" = "${4:-}" ] || complain "$hit   <- no $3 in $1"
    done < <(grep -rnE --include='*.c' --include='*.h' "$2" $1 2> /dev/null)
}

pure='server/base server/math server/optim server/store'
# segment.c opens its own memory again, to read it alone.
none "$pure" '\b(fopen|open|openat|read|write|pread|pwrite|unlink|rename|fsync)\(' \
    'files' server/base/segment.c
none "$pure" '\b(socket|connect|bind|accept4?|send|sendmsg|recv|recvmsg)\(' \
    'sockets'
none "$pure" '\b(clock_gettime|gettimeofday|time|nanosleep|usleep)\(' \
    'clocks'
none "$pure" '\b(rand|random|getrandom|drand48)\(' \
    'randomness'
none 'server/keep'                           '\b(clock_gettime|gettimeofday|time|nanosleep|usleep)\('              \
    'clocks'
none 'server/net'                            '\b(fopen|fprintf\(f|opendir)\('                                      \
    'files on the loop thread'
none 'server/net'                            'pd_accumulate|pd_convert|pd_batch_run|pd_all_finite|cblas_'          \
    'arithmetic on the loop thread'
none "$pure server/keep proto" '#include <pthread\.h>|stdatomic\.h' \
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
store="$(echo server/store/*.h server/store/*/*.h)"
process="$(echo server/*.h server/{threads,host,settings}/*.h)"         # what main.c starts
outside="$(echo server/tools/*/*.h client/*/*.h)"
inward server/base  "$(echo server/{math,optim,net,keep}/*.h proto/*.h) $store $process $outside"
inward server/math  "$(echo server/{optim,net,keep}/*.h proto/*.h) $store $process $outside"
inward server/optim "$(echo server/{net,keep}/*.h proto/*.h) $store $process $outside"
inward server/store "$(echo server/{net,keep}/*.h proto/*.h) $process $outside"
# Files: the keeper's ring knows the wire's safetensors, and of the store only checkpoints and entries in memory.
inward server/keep  "$(echo server/{optim,net}/*.h) $process $outside $(echo $store | tr ' ' '\n' |
    grep -vE '/(checkpoint_image|wal_record)\.h$')"
inward server/cluster "$(echo server/{optim,net,keep,tools/*}/*.h client/*/*.h) $store $process"
inward server/net   "$(echo server/keep/*.h server/{host,settings}/*.h) $outside"
inward server/threads  "$(echo server/settings/*.h) $outside"
# The machine: its helpers beside a disk thread are started by thread.h, and write to the log.
inward server/host     "$(echo server/{settings,threads}/*.h | tr ' ' '\n' | grep -vE '/(thread|log)\.h$') $outside"
inward server/settings "$outside"
# The layers of the store, innermost first: base, round, step, job, image; store.c alone knows all of them.
inward server/store/base  "$(echo server/store/{round,step,job,image}/*.h server/store/*.h)"
inward server/store/round "$(echo server/store/{step,job,image}/*.h server/store/*.h)"
inward server/store/step  "$(echo server/store/{job,image}/*.h server/store/*.h)"
inward server/store/job   "$(echo server/store/image/*.h server/store/*.h)"
inward server/store/image "$(echo server/store/*.h)"
inward proto        "$(echo server/{optim,net,keep}/*.h) $store $process $outside"
# The client library knows the wire. paramctl reads roles and checkpoints, and links no arithmetic.
inward client/lib   "$(echo server/{optim,net,keep}/*.h client/{ctl,tools,example}/*.h) $store \
    $process $(echo server/tools/*/*.h)"
inward client/ctl   "$(echo server/{optim,net}/*.h server/tools/*/*.h $store $process | tr ' ' '\n' |
    grep -vE '/(roles|trusted_files|checkpoint_image|wal_record)\.h$')"
inward client/tools "$(echo server/{optim,net,keep}/*.h client/ctl/*.h server/tools/*/*.h) $store $process"
# What a job needs is counted in one place, optimizers are described in one, limits of the machine are read in one:
# these programs ask the same files as the daemon.
counting='footprint|job_keys|placement|optimizers|host'
for tool in server/tools/*/; do
    # paramctl reshard is a daemon's store between old files and new ones.
    may=$counting
    [ $tool = server/tools/reshard/ ] && may='effects|store|reshard|checkpoint_files|state_dir|wal_files'
    inward ${tool%/} "$(echo server/net/*.h server/keep/*.h client/ctl/*.h $store $process | tr ' ' '\n' |
        grep -vE "/($may)\.h$")"
done

# No module includes or calls itself by way of others. The conversation and the client library are one layer each: their
# files call each other back.
circles=$(tests/circles.py . server client proto --layer server/net --layer client/lib) || complain "$circles"
echo "$circles" | tail -n 1

# A file's name says where it is: a stem (the name without .c or .h) is used in one folder only.
while IFS= read -r stem; do complain "$stem   <- files of this name in two folders"; done < <(
    find server client proto tests -name '*.[ch]' -printf '%h %f\n' | sed 's/\.[ch]$//' | sort -u | cut -d' ' -f2 \
        | sort | uniq -d)
while IFS= read -r name; do complain "$name   <- two files of this name"; done < <(
    find server client proto include tests deploy -name '*.[ch]' -printf '%f\n' | sort | uniq -d)

# Files stay short enough to be read at once.
while read -r lines file; do
    [ "$lines" -le 900 ] || complain "$file:$lines   <- a file has at most 900 lines"
done < <(find server proto client include tests -name '*.[ch]' -exec wc -l {} + | grep -v ' total$')

# Only the folders of the design.
for entry in */; do
    case ${entry%/} in server|client|proto|include|tests|deploy|build) ;; *) complain \
        "$entry   <- not a top-level folder of the design" ;; esac
done

if [ $violations -gt 0 ]; then echo "$violations violations"; exit 1; fi
echo "layering holds"
