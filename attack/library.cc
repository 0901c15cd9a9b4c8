// SPDX-License-Identifier: Apache-2.0
//
// How the library is opened, started and ended.
#include <dlfcn.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "attack/subject.h"
#include "gmac/api/adsm_datatype.h"

namespace attack {
namespace {

// A program that finds the library as the linker says, and in which nothing is preloaded.
End runLinked(const std::string& program) {
  const std::filesystem::path folder = std::filesystem::current_path() / "linked";
  std::filesystem::create_directories(folder);
  std::filesystem::create_symlink(libraryPath(), folder / "libgmac.so.0");
  ::setenv("LD_LIBRARY_PATH", folder.c_str(), 1);
  return runProgram({program}, 40, {"LD_PRELOAD"});
}

// The runtime starts, and forks its device process, while other threads are in the C library.
void startBeside(void (*busy)()) {
  for (int round = 0; round < 25; ++round) {
    const End end = inChild(
        [busy, round] {
          std::atomic<bool> stop{false};
          std::vector<std::thread> threads;
          for (int i = 0; i < 2; ++i) {
            threads.emplace_back([&] {
              while (!stop) busy();
            });
          }
          pause(0.0005 * round);
          std::vector<std::thread> starters;
          for (int i = 0; i < 3; ++i) starters.emplace_back([] { (void)allocate(1000); });
          for (std::thread& thread : starters) thread.join();
          work();
          stop = true;
          for (std::thread& thread : threads) thread.join();
        },
        8);
    require(end.exitStatus == 0, "round {}: {}", round, end.text());
  }
}

const Registration kStarts({
    {"library/starts beside dlopen",
     [] {
       startBeside([] {
         void* const library = ::dlopen("libz.so.1", RTLD_NOW);
         if (library != nullptr) ::dlclose(library);
       });
     },
     120},
    {"library/starts beside dl_iterate_phdr",
     [] {
       startBeside([] {
         ::dl_iterate_phdr(
             [](dl_phdr_info*, std::size_t, void*) {
               // Some time, with the linker's lock held.
               for (volatile int i = 0; i < 200;) i = i + 1;
               return 0;
             },
             nullptr);
       });
     },
     120},
    {"library/starts beside malloc",
     [] {
       startBeside([] { std::free(std::malloc(static_cast<std::size_t>(std::rand()) % 100000)); });
     },
     120},
    {"library/starts beside streams",
     [] {
       startBeside([] {
         std::FILE* const file = std::tmpfile();
         std::fprintf(file, "%d %f", 1, 2.0);
         std::fclose(file);
       });
     },
     120},
    {"library/starts beside children that start",
     [] {
       startBeside([] {
         const pid_t child = ::fork();
         if (child == 0) {
           // Of the parent's runtime or of one of its own.
           void* const object = adsmAlloc(100000);
           ::_exit(object != nullptr || adsmLastError() == adsmErrorForked ? 0 : 1);
         }
         int status = 0;
         ::waitpid(child, &status, 0);
         require(status == 0, "a child ended with {:#x}", status);
       });
     },
     120},
    {"library/starts in an empty root",
     [] {
       const End end = inChild([] {
         require(::chroot(".") == 0, "chroot: {}", std::strerror(errno));
         work();
       });
       if (end.output.find("chroot") != std::string::npos) endSkipped(end.text());
       require(end.exitStatus == 0, "{}", end.text());
     }},
    {"library/opened and closed 40 times",
     [] {
       const End end = runProgram({besideMe("plain"), libraryPath(), "40"}, 60, {"LD_PRELOAD"});
       require(end.exitStatus == 0, "{}", end.text());
     },
     80},
    {"library/preloaded into a program with the thread sanitizer",
     [] {
       ::unsetenv("TSAN_OPTIONS");
       const End end = runProgram({besideMe("sanitized_thread")}, 40);
       require(end.exitStatus == 0, "{}", end.text());
     },
     60},
    {"library/linked with a program with the thread sanitizer",
     [] {
       ::setenv("TSAN_OPTIONS", "die_after_fork=0:report_signal_unsafe=0", 1);
       const End end = runLinked(besideMe("sanitized_thread"));
       require(end.exitStatus == 0, "{}", end.text());
     },
     60},
    {"library/linked with a program with the thread sanitizer that is told nothing",
     [] {
       ::unsetenv("TSAN_OPTIONS");
       const End end = runLinked(besideMe("sanitized_thread"));
       require(end.exitStatus == 1 &&
                   end.output.find("TSAN_OPTIONS=die_after_fork=0") != std::string::npos,
               "{}", end.text());
     },
     60},
    {"library/in a program with the address sanitizer",
     [] {
       ::setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0", 1);
       const End end = runProgram({besideMe("sanitized_address")}, 40);
       require(end.exitStatus == 0, "{}", end.text());
     },
     60},
    {"library/first allocation after a type",
     [] {
       adsmType_t type = nullptr;
       check(adsmTypeVector(10, 1, 2, ADSM_TYPE_8, &type), "adsmTypeVector");
       work();
       check(adsmTypeFree(type), "adsmTypeFree");
     }},
    {"library/exits in every state",
     [] {
       void (*const ends[])() = {[] { std::exit(0); }, [] { ::_exit(0); },
                                 [] { std::quick_exit(0); }, [] { ::pthread_exit(nullptr); }};
       for (const auto end : ends) {
         for (int state = 0; state < 3; ++state) {
           const End how = inChild([end, state] {
             std::uint32_t* const words = allocate(1 << 20);
             words[0] = 1;
             if (state > 0) add(words, 1 << 20, 1);
             if (state > 1) sleepOn(words, 300);
             end();
           });
           require(how.exitStatus == 0, "state {}: {}", state, how.text());
         }
       }
     },
     60},
});

// ---- What is said

std::vector<Attack> sayings() {
  const struct {
    const char* variable;
    const char* value;
    bool fails;
  } settings[] = {{"GMAC_PROTOCOL", "eager", true},
                  {"GMAC_ACCEL", "opencl", true},
                  {"GMAC_BLOCK_SIZE", "5000", true},
                  {"GMAC_HOST_MEMORY", "1M", true}};
  std::vector<Attack> attacks;
  for (const auto& setting : settings) {
    const std::string part = fmt::format("library/.asks nothing, {}", setting.variable);
    attacks.push_back({part, [] {
                         for (int i = 0; i < 3; ++i) {
                           if (adsmAlloc(100) != nullptr) endFailed("it allocates");
                         }
                       }});
    attacks.push_back(
        {fmt::format("library/a start that fails is said: {}={}", setting.variable, setting.value),
         [setting, part] {
           ::setenv(setting.variable, setting.value, 1);
           const End end = runProgram({"/proc/self/exe", part}, 10);
           const std::size_t first = end.output.find("gmac: ");
           require(end.exitStatus == 0 && first != std::string::npos &&
                       end.output.find("gmac: ", first + 1) == std::string::npos &&
                       end.output.find(setting.variable) != std::string::npos,
                   "{}", end.text());
         }});
  }
  return attacks;
}
const Registration kSayings(sayings());

}  // namespace
}  // namespace attack
