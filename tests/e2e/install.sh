#!/bin/bash
# What cmake --install gives: everything is there, a stranger's program builds on it with pkg-config alone, the unit file
# names the folders it was installed to, and an operator's configuration survives the next installation.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
build=${PARAMD_BIN:?}/..

scratch=$(mktemp -d /tmp/paramd-install.XXXXXX)
trap 'rm -rf "$scratch"' EXIT

DESTDIR=$scratch/root cmake --install "$build" > "$scratch/said" 2>&1 || { cat "$scratch/said"; exit 1; }
prefix=$scratch/root$(sed -n 's/^CMAKE_INSTALL_PREFIX:PATH=//p' "$build/CMakeCache.txt")
missing=0
for path in bin/paramd bin/paramctl bin/paramctl-replay bin/paramctl-plan bin/paramctl-bench include/paramd/client.h include/paramd/error.h include/paramd/tensor.h \
    lib/systemd/system/paramd.service lib/systemd/system/paramd.socket; do
    [ -s "$prefix/$path" ] || { echo "not installed: $path"; missing=1; }
done
conf=$(find "$scratch/root" -name paramd.conf) package=$(find "$scratch/root" -name paramd.pc)
[ -s "$conf" ] || { echo "not installed: paramd.conf"; missing=1; }
[ -s "$package" ] || { echo "not installed: paramd.pc"; missing=1; }
[ $missing = 0 ]

start=$(sed -n 's/^ExecStart=//p' "$prefix/lib/systemd/system/paramd.service")
[ "$start" = "${prefix#"$scratch/root"}/bin/paramd --config ${conf#"$scratch/root"}" ] || { echo "the unit file starts: $start"; exit 1; }

echo "# mine" >> "$conf"
DESTDIR=$scratch/root cmake --install "$build" > "$scratch/said" 2>&1
tail -n 1 "$conf" | grep -q '^# mine$' || { echo "the second installation wrote over paramd.conf"; exit 1; }

# A user of the library: finds it by pkg-config, links it, runs with it.
cat > "$scratch/user.c" << 'EOF'
#include <paramd/client.h>
#include <stdio.h>
int main(void)
{
    pd_client *client;
    pd_error   err;
    int rc = pd_client_open(&client, &(pd_client_options){ .urls = "nonsense://", .deadline = 1 }, &err);
    puts(pd_code_name(rc));
    return rc == PD_INVALID_ARGUMENT ? 0 : 1;
}
EOF
export PKG_CONFIG_PATH=${package%/*} PKG_CONFIG_SYSROOT_DIR=$scratch/root
read -ra flags < <(pkg-config --cflags --libs paramd)
gcc -std=c11 -Wall -Wextra -Werror -o "$scratch/user" "$scratch/user.c" "${flags[@]}"
library=$(find "$scratch/root" -name 'libparamd.so.0')
LD_LIBRARY_PATH=${library%/*} "$scratch/user"
LD_LIBRARY_PATH=${library%/*} "$prefix/bin/paramd" --version
"$prefix/bin/paramctl" --help > /dev/null

# The arithmetic alone, without a daemon: one step of sgd.
cat > "$scratch/alone.c" << 'EOF'
#include <paramd/optim.h>
#include <stdio.h>
int main(void)
{
    pd_declaration param = { .name = "w", .shape = { 1, { 2 } } };
    float gradient[2] = { 1, 2 }, weights[2] = { 0, 0 };
    pd_step_io io = { .gradient = gradient, .before = weights, .after = weights };
    pd_model *model;
    pd_error  err;
    pd_hypers_init(&param.hypers, pd_optim_find("sgd"));
    if (pd_hypers_set(&param.hypers, "lr", "0.5", &err) != PD_OK || pd_model_new(&model, &param, 1, 1, &err) != PD_OK) return 1;
    if (pd_model_step(model, &io, &err) != PD_OK) return 1;
    pd_model_free(model);
    printf("%g %g\n", weights[0], weights[1]);
    return weights[0] == -0.5f && weights[1] == -1.0f ? 0 : 1;
}
EOF
gcc -std=c11 -Wall -Wextra -Werror -o "$scratch/alone" "$scratch/alone.c" "${flags[@]}" -lparamd_optim "-Wl,-rpath-link,$(dirname "$library")"
LD_LIBRARY_PATH=${library%/*} "$scratch/alone"
