#!/bin/bash
# What `cmake --install --prefix` gives: all that the quickstart builds, with the paths of that prefix, and nothing
# outside of it. The minimal worker is built with it in C and C++, by pkg-config and by find_package, and trains. A
# packager's DESTDIR works, and an operator's configuration survives the next installation.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
build=$(cd "${PARAMD_BIN:?}/.." && pwd)

scratch=$(mktemp -d /tmp/paramd-install.XXXXXX)
daemon=
trap 'if [ -n "$daemon" ]; then kill "$daemon" || true; fi; rm -rf "$scratch"' EXIT
die() { printf '%s\n' "$*"; exit 1; }

# quietly COMMAND...: shows the output only if the command fails.
quietly() { "$@" > "$scratch/output" 2>&1 || die "$* failed:" "$(cat "$scratch/output")"; }

# ---- a prefix that is chosen when installing ----
prefix=$scratch/opt
quietly cmake --install "$build" --prefix "$prefix"
if grep -v "^$prefix/" "$build/install_manifest.txt"; then die "these files were installed outside of $prefix"; fi
for path in bin/paramd bin/paramctl bin/paramctl-replay bin/paramctl-plan bin/paramctl-bench bin/paramctl-optimizers \
    bin/paramctl-doctor bin/paramctl-reshard etc/paramd/paramd.conf \
    include/paramd/{client,diloco,error,optim,tensor,version}.h lib/libparamd.so lib/libparamd_optim.so \
    lib/pkgconfig/paramd.pc lib/cmake/paramd/paramdConfig{,Version}.cmake lib/systemd/system/paramd.{service,socket} \
    lib/systemd/system/paramd@.service \
    lib/systemd/system/paramd-tls.socket lib/sysusers.d/paramd.conf lib/sysctl.d/60-paramd.conf \
    share/doc/paramd/proto/PROTOCOL.md; do
    [ -s "$prefix/$path" ] || die "not installed: $path"
done
unit=$prefix/lib/systemd/system/paramd.service
start="$prefix/bin/paramd --config $prefix/etc/paramd/paramd.conf"
grep -qx "ExecStart=$start" "$unit" || die "$(grep ExecStart "$unit")"
if grep -n '[ =]/usr/bin/\|[ =]/etc/' "$unit"; then die "the unit file names folders outside of $prefix"; fi
if grep -rlF "$build" "$prefix"/lib/{pkgconfig,cmake,systemd}; then die "these files name the build folder"; fi

# All programs and libraries that are installed are built with the targets of the quickstart.
read -ra targets < <(sed -n 's/^cmake --build build\/release --target \([a-z -]*\) -- .*/\1/p' deploy/quickstart.sh)
[ ${#targets[@]} -gt 0 ] || die "found no targets in deploy/quickstart.sh"
ninja -C "$build" -t inputs "${targets[@]}" > "$scratch/inputs"
for path in "$prefix"/bin/* "$prefix"/lib/lib*.so.*.*; do
    path=${path#"$prefix/"}
    if [[ " ${targets[*]} " = *" ${path##*/} "* ]]; then continue; fi
    grep -qx "$path" "$scratch/inputs" || die "the quickstart does not build $path"
done

# The container's command accepts the configuration that is shipped.
words=$(sed -n 's/^ENTRYPOINT \[\("paramd".*\)\]/\1/p' deploy/Dockerfile | tr -d '",')
read -ra entry <<< "${words/ \/etc\// $prefix/etc/}"
[[ ${entry[*]} = *"--config $prefix/etc/paramd/paramd.conf"* ]] || die "the container reads no configuration: $words"
quietly "$prefix/bin/${entry[0]}" "${entry[@]:1}" --insecure=yes --check-config

# ---- users of the libraries; the installation may be moved ----
mv "$prefix" "$scratch/moved"
prefix=$scratch/moved
cp client/example/minimal.c "$scratch/minimal.c"
cp client/example/minimal.c "$scratch/minimal.cc"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib
read -ra flags < <(pkg-config --cflags --libs paramd)
gcc -std=c11 -Wall -Wextra -Werror -o "$scratch/by-pkg-config-c" "$scratch/minimal.c" "${flags[@]}"
g++ -std=c++11 -Wall -Wextra -Werror -o "$scratch/by-pkg-config-cxx" "$scratch/minimal.cc" "${flags[@]}"

cat > "$scratch/CMakeLists.txt" << 'END'
cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES C CXX)
find_package(paramd 0.1 REQUIRED)
add_executable(by-cmake-c minimal.c)
target_link_libraries(by-cmake-c paramd::paramd)
add_executable(by-cmake-cxx minimal.cc)
target_link_libraries(by-cmake-cxx paramd::paramd paramd::optim)
END
export CMAKE_PREFIX_PATH=$prefix
quietly cmake -S "$scratch" -B "$scratch/user"
quietly cmake --build "$scratch/user"
sed -i 's/paramd 0.1 REQUIRED/paramd 0.2 REQUIRED/' "$scratch/CMakeLists.txt"
if cmake -S "$scratch" -B "$scratch/newer" > "$scratch/output" 2>&1; then die "version 0.1 is taken for 0.2"; fi

"$prefix/bin/paramd" --listen 127.0.0.1:0 --port-file "$scratch/port" > "$scratch/log" 2>&1 &
daemon=$!
deadline=$((SECONDS + 20))
until [ -s "$scratch/port" ]; do
    kill -0 "$daemon" || die "the installed daemon has ended:" "$(cat "$scratch/log")"
    [ $SECONDS -lt $deadline ] || die "the installed daemon does not listen after 20 s:" "$(cat "$scratch/log")"
    sleep 0.1
done
PARAMD_URL=tcp://127.0.0.1:$(cat "$scratch/port")
export PARAMD_URL
workers=("$scratch"/by-pkg-config-{c,cxx} "$scratch"/user/by-cmake-{c,cxx})
pids=()
for rank in "${!workers[@]}"; do
    RANK=$rank WORLD_SIZE=4 "${workers[rank]}" > "$scratch/worker-$rank" &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
[ "$(cat "$scratch"/worker-? | grep -c 'y = 3.000 x + 2.000')" = 4 ] || die "$(cat "$scratch"/worker-?)"
kill "$daemon" && wait "$daemon"
daemon=

# The arithmetic alone, without a daemon: one step of sgd.
cat > "$scratch/alone.c" << 'END'
#include <paramd/optim.h>
#include <stdio.h>
int main(void)
{
    pd_declaration param = { .name = "w", .shape = { 1, { 2 } } };
    float gradient[2] = { 1, 2 }, weights[2] = { 0, 0 };
    pd_step_io io = { .gradient = gradient, .before = weights, .after = weights };
    pd_model *model;
    pd_error err;

    pd_hypers_init(&param.hypers, pd_optim_find("sgd"));
    if (pd_hypers_set(&param.hypers, "lr", "0.5", &err) != PD_OK) return 1;
    if (pd_model_new(&model, &param, 1, 1, &err) != PD_OK) return 1;
    if (pd_model_step(model, &io, &err) != PD_OK) return 1;
    pd_model_free(model);
    return weights[0] == -0.5f && weights[1] == -1.0f ? 0 : 1;
}
END
gcc -std=c11 -Wall -Wextra -Werror -o "$scratch/alone" "$scratch/alone.c" "${flags[@]}" -lparamd_optim
"$scratch/alone" || die "one step of sgd went wrong"

# ---- a packager's installation ----
export DESTDIR=$scratch/root
quietly cmake --install "$build" --prefix /usr
conf=$DESTDIR/etc/paramd/paramd.conf
[ -s "$conf" ] || die "not installed: /etc/paramd/paramd.conf"
cmp "$DESTDIR/usr/lib/systemd/system/paramd.service" deploy/paramd.service
echo "# mine" >> "$conf"
quietly cmake --install "$build" --prefix /usr
tail -n 1 "$conf" | grep -q '^# mine$' || die "the second installation wrote over paramd.conf"

# ---- warnings of other compilers stop nobody ----
quietly cmake -G Ninja -S . -B "$scratch/plain" -DBUILD_TESTING=OFF
if grep -q -- '-Werror ' "$scratch/plain/build.ninja"; then die "warnings are errors without a preset"; fi
