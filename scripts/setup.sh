# SPDX-License-Identifier: Apache-2.0
# For demo.sh and test.sh, which read this file: installs what a Debian or Ubuntu machine lacks.

# Say what comes next.
step()
{
    printf '\n== %s\n' "$*"
}

die()
{
    printf 'feedline: %s\n' "$*" >&2
    exit 1
}

# install_packages NAME ... : Debian packages that are not there yet.
install_packages()
{
    local missing=() name root=()

    command -v apt-get >/dev/null || {
        printf 'this is not Debian or Ubuntu: make sure that you have the equivalents of: %s\n' "$*"
        return 0
    }
    for name in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        echo "all packages are there"
        return 0
    fi
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || die "these packages are missing, and there is no sudo: ${missing[*]}"
        root=(sudo)
        [ -t 0 ] || root=(sudo -n)
    fi
    echo "installing ${missing[*]}"
    local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
    "${apt[@]}" update || die "apt-get update failed: is the network there?"
    "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null ||
        die "apt-get could not install: ${missing[*]}"
}

# install_python VENV NAME==VERSION ... : a virtual environment with these packages.
install_python()
{
    local venv=$1 stamp
    shift
    stamp="$venv/.has $*"
    [ -f "$stamp" ] && { echo "all Python packages are there"; return 0; }
    echo "installing into $venv: $*"
    python3 -m venv "$venv" || die "python3 could not make a virtual environment in $venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 3 "$@" ||
        die "pip could not install: $*"
    touch "$stamp"
}

# What the build needs; libjpeg-dev is libjpeg-turbo on both.
build_packages=(build-essential cmake ninja-build pkg-config
    libjpeg-dev liburing-dev libzstd-dev libxxhash-dev)
# What the tests need besides.
test_packages=(clang clang-tidy doxygen strace python3 python3-venv python3-dev zstd)
test_python=(clang-format==14.0.6 numpy==2.2.6 pillow==11.3.0)
