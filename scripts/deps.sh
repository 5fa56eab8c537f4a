#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building and testing terrace needs and this machine lacks (Debian 12, Ubuntu 24.04 or newer).
# Does nothing, and needs no network, when everything is there.
#
#   scripts/deps.sh            what the build, the tests and the demo need
#   scripts/deps.sh --ci       clang-format 16 as well
set -euo pipefail

say() { printf 'deps: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

work=
trap 'if [ -n "$work" ]; then rm -rf "$work"; fi' EXIT

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else fail "needs root or sudo to run: $*"
  fi
}

apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 \
    -o Dpkg::Use-Pty=0 "$@"
}

lists_are_fresh=
update_lists_once() {
  if [ -z "$lists_are_fresh" ]; then apt_get update; lists_are_fresh=yes; fi
}

has_package() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Prints the packages that are missing: by program where any installation of the program will do, by package otherwise.
missing_packages() {
  local entry
  for entry in g++:g++ cmake:cmake ninja:ninja-build make:make pkg-config:pkg-config git:git python3:python3 ccache:ccache \
    ${want_clang_format:+clang-format-16:clang-format-16}; do
    command -v "${entry%%:*}" >/dev/null || printf '%s\n' "${entry#*:}"
  done
  for entry in nlohmann-json3-dev libcli11-dev libfmt-dev libpcre2-dev libutf8proc-dev liburing-dev libpmem2-dev \
    libnuma-dev libbenchmark-dev libboost-context-dev; do
    has_package "$entry" || printf '%s\n' "$entry"
  done
}

# terrace builds without these; they are left out where the distribution has none.
is_optional() { case "$1" in liburing-dev | libpmem2-dev | libnuma-dev | libbenchmark-dev | libboost-context-dev | ccache) ;; *) false ;; esac; }

candidate_of() { apt-cache policy "$1" 2>/dev/null | awk '$1 == "Candidate:" && $2 != "(none)" { print $2 }'; }

install_packages() {
  local missing package
  local -a chosen=()
  missing=$(missing_packages)
  [ -n "$missing" ] || return 0
  command -v apt-get >/dev/null || fail "this is not a Debian or Ubuntu; install these by hand:" "$missing"
  update_lists_once
  for package in $missing; do
    if [ -n "$(candidate_of "$package")" ]; then chosen+=("$package")
    elif is_optional "$package"; then say "no package $package here; terrace builds without it"
    else fail "apt knows no package $package; enable the distribution's main (Ubuntu: universe) component"
    fi
  done
  [ ${#chosen[@]} -gt 0 ] || return 0
  say "installing ${chosen[*]}"
  apt_get install --no-install-recommends "${chosen[@]}"
}

has_catch2() {
  local probe="$work/probe"
  mkdir -p "$probe"
  printf '%s\n' 'cmake_minimum_required(VERSION 3.25)' 'project(probe LANGUAGES NONE)' \
    'find_package(Catch2 3.4 REQUIRED)' >"$probe/CMakeLists.txt"
  cmake -G Ninja -S "$probe" -B "$probe/build" >/dev/null 2>&1
}

# Writes this machine's own apt entries for the suite $1 (their mirrors, keys and options), as sources of suite $2, into
# the folder $3, in both forms that apt reads.
source_entries() {
  local from=$1 to=$2 into=$3 file
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    case "$file" in
      *.list)
        [ -r "$file" ] || continue
        sed -nE "s/^ *deb +(\[[^]]*\] +)?([^ ]+) +$from +(.* )?main( .*)?\$/deb-src \1\2 $to main/p" "$file" >>"$into/a.list"
        ;;
      *.sources)
        awk -v RS= -v from="$from" -v to="$to" '
          /(^|\n)Enabled: *no/ { next }
          ("\n" $0 "\n") ~ ("\nSuites:([^\n]* )? *" from "[ \n]") && /(^|\n)Components:[^\n]*main/ {
            sub(/(^|\n)Types:[^\n]*/, "\nTypes: deb-src"); sub(/(^|\n)Suites:[^\n]*/, "\nSuites: " to)
            sub(/(^|\n)Components:[^\n]*/, "\nComponents: main"); sub(/^\n/, ""); print $0 "\n"
          }' "$file" >>"$into/b.sources"
        ;;
    esac
  done
}

# Debian 12 has Catch2 2; its newer suite has the source of Catch2 3. Fetched through apt, which checks its signature,
# with lists and configuration of its own: the system's sources stay as they are.
install_catch2_from_newer_suite() {
  local codename newer=trixie source
  # shellcheck source=/dev/null
  codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
  mkdir -p "$work/parts" "$work/lists/partial" "$work/source"
  source_entries "$codename" "$newer" "$work/parts"
  chmod -R a+rX "$work"
  local -a private=(-qq -o Acquire::Retries=3 -o Acquire::Languages=none -o Dir::Etc::SourceList=/dev/null
    -o "Dir::Etc::SourceParts=$work/parts" -o "Dir::State::Lists=$work/lists"
    -o "Dir::Cache::pkgcache=$work/pkgcache.bin" -o "Dir::Cache::srcpkgcache=$work/srcpkgcache.bin"
    -o APT::Sandbox::User=)
  say "building Catch2 3 from Debian's $newer sources (a minute or two)"
  apt-get "${private[@]}" update || say "some entries of $newer could not be read; going on with the others"
  (cd "$work/source" && apt-get "${private[@]}" source --download-only "catch2/$newer") ||
    fail "Catch2 3 is not to be had from $newer; install it under /usr/local, or configure with -DTERRACE_FETCH_DEPS=ON"
  source=$(find "$work/source" -name 'catch2_*.orig.tar.*' ! -name '*.asc')
  tar -C "$work/source" -xf "$source" --one-top-level=catch2 --strip-components=1
  cmake -G Ninja -S "$work/source/catch2" -B "$work/catch2" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=20 \
    -DBUILD_TESTING=OFF -DCATCH_INSTALL_DOCS=OFF -DCMAKE_INSTALL_PREFIX=/usr/local >/dev/null
  cmake --build "$work/catch2" >"$work/log" || { cat "$work/log" >&2; fail "Catch2 did not build"; }
  as_root cmake --install "$work/catch2" >/dev/null
}

install_catch2() {
  if has_catch2; then return; fi
  update_lists_once
  if dpkg --compare-versions "$(candidate_of catch2)" ge 3.4; then
    apt_get install --no-install-recommends catch2
  else
    install_catch2_from_newer_suite
  fi
  has_catch2 || fail "Catch2 3 was installed, but CMake does not find it; is /usr/local on CMAKE_PREFIX_PATH?"
}

want_clang_format=
case "${1-}" in
  '') ;;
  --ci) want_clang_format=yes ;;
  *) fail "unknown option $1; usage: scripts/deps.sh [--ci]" ;;
esac
work=$(mktemp -d)
install_packages
install_catch2
