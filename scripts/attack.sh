# SPDX-License-Identifier: Apache-2.0
# ./gmacw attack: what a process may do, done to the library.

# Programs that nobody here wrote, with tests of their own. An attack that lacks one of them says so and is skipped.
attack_packages=(libpython3.11-testsuite sqlite3 openssl valgrind)

run_attacks() {
  required_packages=("${attack_packages[@]}")
  # (A subshell: what cannot be installed ends the setup, not the attacks.)
  (setup) || say "going on without what could not be installed"
  bazel_build //attack:attack
  cd "$invoked_from"
  exec "$root/bazel-bin/attack/attack" "$@"
}
