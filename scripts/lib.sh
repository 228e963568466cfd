# Functions shared by the scripts in this folder: they find tools and create virtual environments. For
# bash, to be sourced in the repository's root.

readonly RUST_NEEDED=1.91
readonly CMAKE_NEEDED=3.26
readonly PYTHON_NEEDED=3.11

# Headings, and the times when they were printed.
stages=() began=()

# say HEADING: prints it with the minutes and seconds since this shell started.
say() {
  stages+=("$*")
  began+=("$SECONDS")
  printf '\n==> %s  [%d:%02d]\n' "$*" $((SECONDS / 60)) $((SECONDS % 60))
}

# cost WHAT SECONDS: prints a line of the list of costs.
cost() {
  printf '    %3d:%02d  %s\n' $(($2 / 60)) $(($2 % 60)) "$1"
}

# list_costs [FILE]: prints how long each stage took, from its heading to the next one, and the lines of the file, if it is there.
list_costs() {
  local at seconds
  began+=("$SECONDS")
  printf '\n    time of each stage\n'
  for at in "${!stages[@]}"; do
    seconds=$((began[at + 1] - began[at]))
    [[ $seconds -eq 0 ]] || cost "${stages[at]}" "$seconds"
  done
  [[ ! -f ${1:-} ]] || cat "$1"
  cost "in total" "$SECONDS"
}

note() {
  printf '    %s\n' "$*"
}

die() {
  printf '\nerror: %s\n' "$*" >&2
  exit 1
}

# at_least HAVE WANT: whether version HAVE is not older than WANT.
at_least() {
  [[ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" == "$2" ]]
}

# The time since this shell started, such as 3 min 05 s.
elapsed() {
  printf '%d min %02d s' $((SECONDS / 60)) $((SECONDS % 60))
}

need_rust() {
  if ! command -v cargo >/dev/null && [[ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]]; then
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
  fi
  command -v cargo >/dev/null && command -v rustc >/dev/null ||
    die "Rust is missing; install $RUST_NEEDED or newer from https://rustup.rs"
  local have
  have=$(rustc --version | cut -d ' ' -f 2)
  at_least "$have" "$RUST_NEEDED" ||
    die "Rust is $have, hsipack needs $RUST_NEEDED or newer; run: rustup update stable"
  note "Rust $have"
}

need_c_compiler() {
  local compiler=${CC:-}
  if [[ -z "$compiler" ]]; then
    for compiler in cc gcc clang ''; do
      [[ -z "$compiler" ]] || ! command -v "$compiler" >/dev/null || break
    done
  fi
  [[ -n "$compiler" ]] && command -v "$compiler" >/dev/null ||
    die "a C compiler is missing; on Debian or Ubuntu run: apt-get install build-essential"
  command -v make >/dev/null || command -v ninja >/dev/null ||
    die "make is missing; on Debian or Ubuntu run: apt-get install build-essential"
  note "C compiler $compiler"
}

# Sets PYTHON to an interpreter that is new enough and can make virtual environments.
need_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.11 python3.12 python3.13 python3.14; do
    [[ -n "$candidate" ]] && command -v "$candidate" >/dev/null || continue
    if "$candidate" - "$PYTHON_NEEDED" 2>/dev/null <<'PY'; then
import sys
import ensurepip, venv  # Debian has them in a separate package
sys.exit(sys.version_info < tuple(map(int, sys.argv[1].split("."))))
PY
      PYTHON=$(command -v "$candidate")
      note "Python $("$PYTHON" -c 'import platform; print(platform.python_version())')"
      return
    fi
  done
  die "Python $PYTHON_NEEDED or newer with venv is missing; on Debian or Ubuntu run: apt-get install python3-venv"
}

sha256_of() {
  "$PYTHON" -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1"
}

# make_venv FOLDER REQUIREMENTS [UV]: creates a virtual environment with the packages that REQUIREMENTS pins. Installs them
# with UV or, if that is not given, with pip. Does nothing if the environment is there already.
make_venv() {
  local folder=$1 requirements=$2 uv=${3:-} wanted
  wanted=$(sha256_of "$requirements")
  if [[ "$(cat "$folder/.requirements" 2>/dev/null)" == "$wanted" ]] &&
    "$folder/bin/python" -c '' 2>/dev/null; then
    note "$folder has the packages of $requirements"
    return
  fi
  note "creating $folder from $requirements"
  "$folder/bin/python" -m pip --version >/dev/null 2>&1 || "$PYTHON" -m venv --clear "$folder" ||
    die "cannot make a virtual environment in $folder"
  # uv uses the system's certificates, as pip does. It does not know other settings of pip, such as another index, so if uv
  # fails, pip is tried.
  if [[ -n "$uv" && -x "$uv" ]]; then
    if UV_SYSTEM_CERTS=1 "$uv" pip install --quiet --no-progress --python "$folder/bin/python" --requirement "$requirements"; then
      printf '%s\n' "$wanted" >"$folder/.requirements"
      return
    fi
    note "uv failed; trying pip"
  fi
  # --no-compile saves a minute: few modules are ever imported, and these are compiled at their first import.
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-compile \
    --requirement "$requirements" ||
    die "cannot install the packages of $requirements into $folder; is there a network?"
  printf '%s\n' "$wanted" >"$folder/.requirements"
}

# need_cmake FOLDER: puts the CMake of a virtual environment on PATH unless the system's is new enough.
need_cmake() {
  local have
  have=$(cmake --version 2>/dev/null | sed -n '1s/^cmake version \([0-9.]*\).*/\1/p') || true
  if [[ -n "$have" ]] && at_least "$have" "$CMAKE_NEEDED"; then
    note "CMake $have"
    return
  fi
  [[ -x "$1/bin/cmake" ]] || die "CMake $CMAKE_NEEDED or newer is missing, and $1 has none"
  local tools="$1/.tools"
  mkdir -p "$tools"
  # Only CMake: the environment's python must not shadow the user's.
  ln -sf "$(cd "$1/bin" && pwd)/cmake" "$tools/cmake"
  PATH="$(cd "$tools" && pwd):$PATH"
  note "CMake $(cmake --version | sed -n '1s/^cmake version //p') from $1 (the system's is ${have:-missing})"
}

# make_peers: creates .venv-peers, with the loaders that hsipack is compared with and the package hsipack from this clone.
make_peers() {
  make_venv .venv-peers scripts/requirements/peers.txt
  need_cmake .venv-peers
  # The commit, and all changes since.
  local built
  built=$(git rev-parse HEAD; git diff HEAD -- crates Cargo.lock Cargo.toml pyproject.toml)
  if [[ "$(cat .venv-peers/.hsipack 2>/dev/null)" == "$built" ]]; then
    note "the package hsipack is installed"
    return
  fi
  say "the package hsipack (minutes the first time)"
  .venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps --force-reinstall . ||
    die "cannot install the package hsipack from this clone"
  printf '%s\n' "$built" >.venv-peers/.hsipack
}

# want_program WHAT PACKAGE NAME...: looks for a program with one of these names, which some tests need. As root on Debian its
# package is installed; elsewhere these tests are skipped.
want_program() {
  local what=$1 package=$2 name
  shift 2
  for name in "$@"; do
    if command -v "$name" >/dev/null || [[ -x /usr/sbin/$name ]]; then
      note "$name"
      return
    fi
  done
  # Not on Ubuntu, whose package chromium contains no browser and only installs a snap.
  if [[ $EUID -eq 0 ]] && command -v apt-get >/dev/null && grep -qx 'ID=debian' /etc/os-release 2>/dev/null; then
    note "installing $package"
    if { apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
      apt-get -qq install --yes --no-install-recommends "$package"; } >/dev/null 2>&1; then
      return
    fi
    note "apt-get could not install $package; is there a network?"
  fi
  note "no ${package}: the tests $what are skipped; on Debian run: apt-get install $package"
}
