// SPDX-License-Identifier: Apache-2.0
//
// Programs that nobody here wrote, with their own tests, as they run with the library and without:
// the verdicts must be the same. What is not installed is left out.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "attack/subject.h"

namespace attack {
namespace {

std::string required(const std::string& program) {
  std::string path = find(program);
  if (path.empty()) endSkipped(program + " is not installed");
  return path;
}

// The same words with the library, which every program that they start gets too, and without.
End with(std::vector<std::string> words, int seconds) {
  const char* const command = std::getenv("GMAC_TEST_COMMAND");
  require(command != nullptr, "GMAC_TEST_COMMAND is not set");
  words.insert(words.begin(), {command, "run", "--accel", "host", "--"});
  return runProgram(words, seconds, {"LD_PRELOAD"});
}
End without(const std::vector<std::string>& words, int seconds) {
  return runProgram(words, seconds, {"LD_PRELOAD"});
}

// ---- Python

// The tests that unittest's verbose output names, each with its verdict. It follows the name, or
// the first line of the description, or, where the test prints, it has a line of its own.
std::set<std::string> verdicts(const std::string& output) {
  std::set<std::string> found;
  std::istringstream lines(output);
  std::string test;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("test") && line.find(" (") != std::string::npos) {
      test = line.substr(0, line.find(')'));
    }
    if (test.empty()) continue;
    const std::size_t dots = line.rfind(" ... ");
    const std::string verdict = dots == std::string::npos ? line : line.substr(dots + 5);
    for (const char* word : {"ok", "FAIL", "ERROR", "skipped", "expected failure"}) {
      if (!verdict.starts_with(word)) continue;
      found.insert(fmt::format("{} ... {}", test, verdict));
      test.clear();
      break;
    }
  }
  return found;
}

void python(const std::string& module) {
  const std::vector<std::string> words = {required("python3"), "-m", "test", "-v", module};
  const End probe = without({words[0], "-c", "import test.support"}, 30);
  if (probe.exitStatus != 0) endSkipped("Python's own tests are not installed");
  const End plain = without(words, 150);
  const End ours = with(words, 200);
  require(!ours.timedOut || plain.timedOut, "with the library it {}", ours.text());
  if (plain.timedOut) endSkipped("it takes too long here, without the library too");
  const std::set<std::string> expected = verdicts(plain.output);
  const std::set<std::string> seen = verdicts(ours.output);
  require(!expected.empty(), "no verdicts: {}", plain.text());
  std::vector<std::string> lost;
  std::set_difference(expected.begin(), expected.end(), seen.begin(), seen.end(),
                      std::back_inserter(lost));
  require(lost.empty(), "{} of {} verdicts differ, e.g. of: {}", lost.size(), expected.size(),
          lost.empty() ? "" : lost.front());
  require(ours.exitStatus == plain.exitStatus, "it ended with {}, not {}", ours.exitStatus,
          plain.exitStatus);
  fmt::print("{} verdicts\n", seen.size());
}

std::vector<Attack> pythons() {
  std::vector<Attack> attacks;
  for (const char* module :
       {"test_mmap",          "test_fileio", "test_file",    "test_posix",     "test_signal",
        "test_threadsignals", "test_fork1",  "test_wait4",   "test_popen",     "test_pty",
        "test_select",        "test_poll",   "test_epoll",   "test_array",     "test_memoryview",
        "test_ctypes",        "test_zlib",   "test_sqlite3", "test_threading", "test_subprocess",
        "test_socket"}) {
    attacks.push_back({fmt::format("python/{}", module), [module] { python(module); }, 380});
  }
  return attacks;
}
const Registration kPython(pythons());

// ---- SQLite

constexpr const char* kSqlScript = R"(
.bail on
PRAGMA journal_mode=WAL;
CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, weight REAL, payload BLOB);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
  INSERT INTO t SELECT i, 'name' || (i * 7919 % 60000), i * 0.25, zeroblob(i % 900) FROM n;
COMMIT;
CREATE INDEX byName ON t(name);
UPDATE t SET weight = weight * 2 WHERE id % 3 = 0;
DELETE FROM t WHERE id % 5 = 0;
SELECT count(*), sum(weight), sum(length(payload)), min(name), max(name) FROM t;
SELECT count(*) FROM t AS a JOIN t AS b ON a.name = b.name AND a.id <> b.id;
VACUUM;
PRAGMA mmap_size=268435456;
SELECT sum(id), sum(length(name)) FROM t WHERE name LIKE 'name1%';
PRAGMA integrity_check;
.backup copy.db
)";

void sqlite() {
  const std::string program = required("sqlite3");
  std::ofstream("script.sql") << kSqlScript;
  const auto once = [&](const char* database, bool library) {
    const std::vector<std::string> words = {
        "sh", "-c",
        fmt::format("rm -f {0}* copy.db; '{1}' {0} <script.sql && '{1}' copy.db "
                    "'PRAGMA integrity_check; SELECT count(*) FROM t' && "
                    "'{1}' {0} .sha3sum 2>&1 | tail -1",
                    database, program)};
    return library ? with(words, 60) : without(words, 60);
  };
  const End plain = once("plain.db", false);
  const End ours = once("ours.db", true);
  require(plain.exitStatus == 0, "without the library: {}", plain.text());
  require(ours.exitStatus == 0 && ours.output == plain.output, "with the library: {}", ours.text());
  require(ours.output.find("ok") != std::string::npos, "no integrity: {}", ours.text());
}

// ---- OpenSSL

void openssl() {
  const std::string program = required("openssl");
  // Known answers, both ways, keys, signatures, and a connection over a socket.
  std::ofstream("check.sh") << R"sh(set -e
o=$1
test "$(printf abc | $o dgst -sha256 -r | cut -c1-16)" = ba7816bf8f01cfea
test "$(printf abc | $o dgst -sha512 -r | cut -c1-16)" = ddaf35a193617aba
head -c 5000000 /dev/zero | tr '\0' x >data
$o enc -aes-256-cbc -pbkdf2 -k word -in data -out data.enc
$o enc -d -aes-256-cbc -pbkdf2 -k word -in data.enc -out data.dec
cmp data data.dec
$o req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=attack 2>/dev/null
$o x509 -in cert.pem -pubkey -noout >public.pem
$o dgst -sha256 -sign key.pem -out signature data
$o dgst -sha256 -verify public.pem -signature signature data
$o ecparam -name prime256v1 -genkey -noout -out ec.pem
$o dgst -sha256 -sign ec.pem -out ec.signature data
$o ec -in ec.pem -pubout -out ec.public 2>/dev/null
$o dgst -sha256 -verify ec.public -signature ec.signature data
$o prime -generate -bits 256 >/dev/null
$o cms -encrypt -binary -in data -outform DER -out data.cms cert.pem
$o cms -decrypt -inform DER -in data.cms -inkey key.pem -out data.clear
cmp data data.clear
$o verify -CAfile cert.pem cert.pem
port=$((20000 + $$ % 20000))
$o s_server -accept $port -cert cert.pem -key key.pem -quiet -www >server.log 2>&1 &
server=$!
for i in 1 2 3 4 5 6 7 8 9 10; do
  printf 'GET / HTTP/1.0\r\n\r\n' | $o s_client -quiet -connect 127.0.0.1:$port >page 2>/dev/null && break
  sleep 0.3
done
kill $server
grep -q 'HTTP/1.0 200' page
echo all well
)sh";
  for (const bool library : {false, true}) {
    const std::vector<std::string> words = {"sh", "check.sh", program};
    const End end = library ? with(words, 90) : without(words, 90);
    if (!library && end.exitStatus != 0)
      endSkipped("its checks fail without the library: " + end.text());
    require(end.exitStatus == 0, "with the library: {}", end.text());
  }
}

// ---- Others

void fourProcessesOfCoreutils() {
  const std::vector<std::string> words = {
      "sh", "-c",
      "set -e; seq 1 300000 | shuf --random-source=/dev/zero | sort -n --parallel=4 -S 8M | "
      "md5sum; "
      "head -c 30000000 /dev/zero | gzip -1 | gzip -d | wc -c; "
      "tar cf - /usr/include/linux 2>/dev/null | tar tf - | wc -l; "
      "find /usr/share/doc -maxdepth 1 | sort | sha256sum; dd if=/dev/zero bs=1M count=50 "
      "2>/dev/null | sha1sum"};
  const End plain = without(words, 60);
  const End ours = with(words, 90);
  require(plain.exitStatus == 0 && ours.output == plain.output, "with the library: {}",
          ours.text());
}

// The runtime at work under valgrind, which knows not every system call.
void valgrind() {
  const std::string program = required("valgrind");
  // By its name: what that link names in valgrind is valgrind.
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const End end = runProgram(
      {program, "--error-exitcode=9", "-q", "--undef-value-errors=no", self, "suites/.work"}, 100);
  require(end.exitStatus == 0, "{}", end.text());
}

const Registration kSuites({
    {"suites/.work", &work},
    {"suites/sqlite", &sqlite, 150},
    {"suites/openssl", &openssl, 200},
    {"suites/coreutils", &fourProcessesOfCoreutils, 160},
    {"suites/valgrind", &valgrind, 120},
});

}  // namespace
}  // namespace attack
