// SPDX-License-Identifier: Apache-2.0
//
// Programs that nobody here wrote, with their heap in shared objects (heap.cc) in blocks of 4 KiB:
// their output must be what it is without the library. What is not installed is left out.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "attack/subject.h"

namespace attack {
namespace {

struct Program {
  const char* name;
  const char* script;  // for sh; $P is the program
};

// Each allocates much, hands its memory to system calls, and prints what it has found.
constexpr Program kPrograms[] = {
    {"perl",
     "$P -e 'my @a; push @a, \"x$_\" for 1..100000; my $s = join(q(,), @a); print length($s), "
     "qq(\\n); open(F, q(+>), q(f)); print F $s; seek(F, 0, 0); read(F, my $t, 10000000); print $s "
     "eq $t, qq(\\n); print substr(join(q(), sort { $b cmp $a } @a), 0, 50), qq(\\n); print "
     "qx(echo "
     "sub)'"},
    {"python3",
     "$P -c 'import zlib, hashlib, os\nb = bytes(range(256)) * 20000\n"
     "print(hashlib.sha256(b).hexdigest(), len(zlib.compress(b)))\n"
     "f = open(\"f\", \"w+b\", buffering=0); f.write(b); f.seek(0); c = bytearray(len(b))\n"
     "print(f.readinto(c), c == b, os.popen(\"echo sub\").read())'"},
    {"ruby",
     "$P -e 'a = (1..100000).map { |i| i.to_s * 3 }; s = a.join; puts s.size; File.write(%q(f), "
     "s); "
     "puts File.read(%q(f)) == s; GC.start; puts a.sort.last; puts `echo sub`'"},
    {"php",
     "$P -r '$a = range(1, 200000); $s = serialize($a); file_put_contents(\"f\", $s); echo "
     "md5(file_get_contents(\"f\")), PHP_EOL, array_sum(unserialize($s)), PHP_EOL;'"},
    {"luajit",
     "$P -e 'local t = {} for i = 1, 100000 do t[i] = tostring(i) .. string.rep(\"x\", i % 50) end "
     "local s = table.concat(t) local f = io.open(\"f\", \"w+\") f:write(s) f:seek(\"set\") "
     "print(#s, f:read(\"*a\") == s)'"},
    {"guile",
     "$P -c '(define v (make-vector 300000 1)) (display (apply + (vector->list v))) (gc) (display "
     "(string-length (apply string-append (map number->string (iota 30000)))))'"},
    {"node",
     "$P -e 'const fs = require(\"fs\"); const b = Buffer.alloc(5000000, 7); "
     "fs.writeFileSync(\"f\", "
     "b); console.log(fs.readFileSync(\"f\").equals(b)); const z = require(\"zlib\"); "
     "console.log(z.gunzipSync(z.gzipSync(b)).equals(b)); "
     "console.log(require(\"child_process\").execSync(\"echo sub\").toString())'"},
    {"erl",
     "$P +Mea min -noshell -eval 'B = binary:copy(<<1, 2, 3>>, 1000000), ok = "
     "file:write_file(\"f\", B), {ok, C} = file:read_file(\"f\"), io:format(\"~p ~p~n\", [B =:= C, "
     "erlang:crc32(C)]), io:format(\"~p~n\", [lists:sum(lists:sort([X * 7 rem 1009 || X <- "
     "lists:seq(1, 50000)]))]), halt().'"},
    {"sqlite3",
     "rm -f d; $P d 'pragma journal_mode = wal; create table t(a integer primary key, b text); "
     "with "
     "recursive n(i) as (select 1 union all select i + 1 from n where i < 50000) insert into t "
     "select i, hex(i * 7919) from n; create index tb on t(b); update t set b = b || 1 where a % 3 "
     "= "
     "0; select count(*), max(b) from t; vacuum; pragma integrity_check'"},
    {"git",
     "rm -rf r c; $P init -q r && cd r && for i in 1 2 3; do seq $i 20000 > f && $P add f && "
     "GIT_AUTHOR_DATE=2020-01-0${i}T00:00Z GIT_COMMITTER_DATE=2020-01-0${i}T00:00Z $P -c "
     "user.name=a "
     "-c user.email=b commit -qm c$i; done; $P gc -q; $P fsck; $P rev-parse HEAD; cd ..; $P clone "
     "-q "
     "--no-local r c && cd c && $P log --stat | cksum"},
    {"zstd", "seq 1 1000000 > f; $P -q -T3 -5 -f f && $P -dcq f.zst | cmp - f && cksum f.zst"},
    {"xz", "seq 1 500000 > f; $P -T2 --block-size=1MiB -1 -kfc f > g && $P -T2 -dc g | cmp - f"},
    {"curl", "seq 1 500000 > f; $P -s file://$PWD/f | cmp - f && $P -s file://$PWD/f | cksum"},
    {"rsync",
     "rm -rf a b; mkdir a; seq 1 500000 > a/f; $P -a a/ b/ && seq 9 500000 > a/f && $P -a "
     "--no-whole-file --checksum a/ b/ && cmp a/f b/f"},
};

// Of all the processes whose statistics are in that folder.
std::size_t allocations(const std::filesystem::path& folder) {
  std::size_t all = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream words(file.path());
    for (std::string word; words >> word;) {
      std::size_t count = 0;
      if (word == "\"allocations\":" && words >> count) all += count;
    }
  }
  return all;
}

void run(const Program& program) {
  const std::string path = find(program.name);
  if (path.empty()) endSkipped(fmt::format("{} is not installed", program.name));
  const std::string library = libraryPath();
  const std::string heap = besideMe("libheap.so");
  const std::filesystem::path folder = std::filesystem::current_path() / "statistics";
  std::filesystem::create_directory(folder);
  ::setenv("GMAC_BLOCK_SIZE", "4K", 1);
  ::setenv("GMAC_STATS", (folder / "%p").c_str(), 1);
  const auto once = [&](bool ours) {
    // The shell itself has its own heap.
    const std::string preloaded =
        ours ? fmt::format("env LD_PRELOAD={}:{} ", heap, library) : std::string();
    const std::string script = fmt::format("P='{}{}'; {}", preloaded, path, program.script);
    return runProgram({"sh", "-c", script}, 90, {"LD_PRELOAD"});
  };
  const End plain = once(false);
  if (plain.exitStatus != 0) endSkipped("it fails here without the library: " + plain.text());
  const End ours = once(true);
  require(ours.exitStatus == 0 && ours.output == plain.output, "with the library: {}\nwithout: {}",
          ours.text(), plain.text());
  const std::size_t objects = allocations(folder);
  require(objects > 0, "no allocation of it was an object");
  fmt::print("{} objects\n", objects);
}

std::vector<Attack> programs() {
  std::vector<Attack> attacks;
  for (const Program& program : kPrograms) {
    attacks.push_back({fmt::format("heap/{}", program.name), [&program] { run(program); }, 190});
  }
  return attacks;
}
const Registration kHeaps(programs());

}  // namespace
}  // namespace attack
