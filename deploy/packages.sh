# Sourced by quickstart.sh and tests/run.sh: installs what is missing of deploy/packages.txt.
# shellcheck shell=bash

packages_file=${BASH_SOURCE[0]%/*}/packages.txt

# packages_of SECTION... : the packages that stand under "# SECTION" in packages.txt
packages_of() {
    awk -v wanted=" $* " '/^#/ { take = index(wanted, " " $2 " ") > 0; next } NF && take { print $1 }' "$packages_file"
}

# install_packages SECTION... : asks apt only when something is missing
install_packages() {
    local missing=() name sudo=()
    for name in $(packages_of "$@"); do
        dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ]; then
        command -v sudo > /dev/null || { echo "missing packages: ${missing[*]} (install them as root)" >&2; return 1; }
        sudo=(sudo)
    fi
    echo "installing ${missing[*]}"
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" > \
        /dev/null
}
