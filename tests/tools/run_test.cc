// SPDX-License-Identifier: Apache-2.0
//
// `gmac run` from the user's side: the program's environment, its end, and the messages when it
// cannot be run.
#include <elf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gmac/session/config.h"
#include "tests/support/temporary_folder.h"

namespace gmac::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct End {
  int status = -1;  // -1: killed
  int signal = 0;
  std::string output;
  std::string errors;
};

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Relative to where Bazel and the bundle start tests.
const fs::path& commandPath() {
  static const fs::path path = fs::absolute("tools/gmac/gmac");
  return path;
}
const fs::path& probePath() {
  static const fs::path path = fs::absolute("tests/tools/probe");
  return path;
}
// The library that the command must find.
std::string libraryPath() {
  return (fs::canonical(commandPath()).parent_path().parent_path().parent_path() / "gmac" /
          "libgmac.so")
      .string();
}

class Run : public FolderTest {
 protected:
  // The command with these words, in folder_, with nothing in the environment but a PATH and
  // `environment`.
  End command(const std::vector<std::string>& words,
              const std::map<std::string, std::string>& environment = {}) {
    std::map<std::string, std::string> variables = {{"PATH", "/usr/bin:/bin"}};
    for (const auto& [name, value] : environment) variables[name] = value;
    std::vector<std::string> strings = {commandPath().string()};
    strings.insert(strings.end(), words.begin(), words.end());
    std::vector<char*> arguments;
    for (std::string& string : strings) arguments.push_back(string.data());
    arguments.push_back(nullptr);
    const fs::path output = folder_ / ".output";
    const fs::path errors = folder_ / ".errors";
    std::vector<std::string> assignments;
    for (const auto& [name, value] : variables) {
      std::string& assignment = assignments.emplace_back(name);
      assignment += '=';
      assignment += value;
    }
    std::vector<char*> entries;
    for (std::string& assignment : assignments) entries.push_back(assignment.data());
    entries.push_back(nullptr);

    child_ = fork();
    if (child_ == 0) {
      const int out = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      const int err = open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      if (out < 0 || err < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0 ||
          chdir(folder_.c_str()) != 0) {
        _exit(99);
      }
      execve(arguments[0], arguments.data(), entries.data());
      _exit(98);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child_, &status, 0), child_);
    End end;
    if (WIFEXITED(status)) end.status = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
    end.output = contents(output);
    end.errors = contents(errors);
    return end;
  }

  // The value of a variable as the started program sees it.
  std::string seen(const std::string& name, std::vector<std::string> options,
                   const std::map<std::string, std::string>& environment = {}) {
    options.insert(options.begin(), "run");
    options.insert(options.end(), {"--", "sh", "-c", "printf %s \"${" + name + "-not set}\""});
    const End end = command(options, environment);
    EXPECT_EQ(end.status, 0) << end.errors;
    return end.output;
  }

  fs::path write(const std::string& name, const std::string& text, fs::perms permissions) {
    fs::path path = folder_ / name;
    std::ofstream(path) << text;
    fs::permissions(path, permissions);
    return path;
  }

  // A copy of the probe that may be changed.
  fs::path copyOfProbe(const std::string& name) {
    fs::path path = folder_ / name;
    fs::copy_file(probePath(), path);
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }
  pid_t child_ = -1;
};

TEST_F(Run, PreloadsTheLibraryIntoAProgramThatReadsIntoASharedObject) {
  const std::string bytes(3'000'000, '\x01');
  write("input", bytes, fs::perms::owner_read);
  for (const char* protocol : {"batch", "lazy", "rolling"}) {
    const End end = command({"run", "--accel", "host", "--protocol", protocol, "--",
                             probePath().string(), "read", "input"});
    EXPECT_EQ(end.status, 0) << end.errors;
    EXPECT_EQ(end.output, "3000000\n") << end.errors;
  }
}

TEST_F(Run, TheProbeFindsNoLibraryByItself) {
  const End end = command({"--version"});
  EXPECT_EQ(end.status, 0);
  EXPECT_THAT(end.output, StartsWith("gmac "));
  EXPECT_NE(std::system((probePath().string() + " read /dev/null 2>/dev/null").c_str()), 0);
}

TEST_F(Run, OptionsBecomeVariables) {
  EXPECT_EQ(seen("GMAC_ACCEL", {"--accel", "host"}), "host");
  EXPECT_EQ(seen("GMAC_PROTOCOL", {"--protocol", "lazy"}), "lazy");
  EXPECT_EQ(seen("GMAC_MANAGED", {"--managed"}), "1");
  EXPECT_EQ(seen("GMAC_MANAGED", {"--managed", "--trust-hints"}), "trust");
  EXPECT_EQ(seen("GMAC_STATS", {"--stats", "/dev/null"}), "/dev/null");
  EXPECT_EQ(seen("GMAC_TRACE", {"--trace", "/dev/null"}), "/dev/null");
}

TEST_F(Run, WithoutOptionsTheEnvironmentHolds) {
  for (const char* name : {"GMAC_ACCEL", "GMAC_PROTOCOL", "GMAC_MANAGED", "GMAC_STATS"}) {
    EXPECT_EQ(seen(name, {}), "not set") << name;
  }
  EXPECT_EQ(seen("GMAC_PROTOCOL", {}, {{"GMAC_PROTOCOL", "batch"}}), "batch");
  EXPECT_EQ(seen("GMAC_PROTOCOL", {"--protocol", "lazy"}, {{"GMAC_PROTOCOL", "batch"}}), "lazy");
}

TEST_F(Run, PathsAreAbsoluteForProgramsThatChangeTheirFolder) {
  EXPECT_EQ(seen("GMAC_STATS", {"--stats", "s.json"}), folder_ / "s.json");
  EXPECT_EQ(seen("GMAC_TRACE", {"--trace=t/../t.json"}), folder_ / "t/../t.json");
}

TEST_F(Run, StatisticsAndTraceAreWritten) {
  write("input", "abc", fs::perms::owner_read);
  const End end = command({"run", "--accel", "host", "--stats", "s.json", "--trace", "t.json", "--",
                           probePath().string(), "read", "input"});
  EXPECT_EQ(end.status, 0) << end.errors;
  EXPECT_THAT(contents(folder_ / "s.json"), HasSubstr("\"accelerator\": \"host\""));
  EXPECT_THAT(contents(folder_ / "t.json"), HasSubstr("traceEvents"));
}

TEST_F(Run, TheLibraryComesBeforeWhatIsPreloadedAlready) {
  EXPECT_EQ(seen("LD_PRELOAD", {}), libraryPath());
  EXPECT_EQ(seen("LD_PRELOAD", {}, {{"LD_PRELOAD", "libm.so.6 libdl.so.2"}}),
            libraryPath() + ":libm.so.6:libdl.so.2");
}

TEST_F(Run, TheLibraryIsPreloadedOnceWhenTheCommandRunsItself) {
  const End end = command({"run", "--accel", "host", "--", commandPath().string(), "run", "--",
                           "sh", "-c", "echo $LD_PRELOAD $GMAC_ACCEL"});
  EXPECT_EQ(end.output, libraryPath() + " host\n") << end.errors;
}

TEST_F(Run, TheProgramTakesThePlaceOfTheCommand) {
  const End end = command({"run", "--", "sh", "-c", "echo $$"});
  EXPECT_EQ(end.output, std::to_string(child_) + "\n") << end.errors;
}

TEST_F(Run, ExitStatusesAreTheProgramsOwn) {
  for (const int status : {0, 1, 2, 77, 127, 255}) {
    EXPECT_EQ(command({"run", "--", "sh", "-c", "exit " + std::to_string(status)}).status, status);
  }
}

TEST_F(Run, SignalsAreTheProgramsOwn) {
  for (const int signal : {SIGTERM, SIGKILL, SIGUSR1}) {
    const End end = command({"run", "--", "sh", "-c", "kill -" + std::to_string(signal) + " $$"});
    EXPECT_EQ(end.status, -1);
    EXPECT_EQ(end.signal, signal);
  }
}

TEST_F(Run, ArgumentsReachTheProgramAsTheyAre) {
  const End end =
      command({"run", "--", "printf", "%s|", "--accel", "", "a b", "--", "$HOME", "-h"});
  EXPECT_EQ(end.status, 0) << end.errors;
  EXPECT_EQ(end.output, "--accel||a b|--|$HOME|-h|");
}

TEST_F(Run, WrongWordsAreAnsweredWithTheRightOnes) {
  for (const auto& [option, variable] :
       {std::pair("--accel", "GMAC_ACCEL"), std::pair("--protocol", "GMAC_PROTOCOL")}) {
    for (const char* word : {"gpu", "Rolling", " host"}) {
      const End end = command({"run", option, word, "--", "true"});
      EXPECT_EQ(end.status, 2);
      EXPECT_THAT(end.errors, AllOf(StartsWith("gmac: "), HasSubstr(option),
                                    HasSubstr("\"" + std::string(word) + "\" is not allowed"),
                                    HasSubstr("allowed: " + allowedValues(variable))));
      EXPECT_EQ(end.output, "");
    }
  }
}

TEST_F(Run, WrongCommandLinesAreAnsweredWithTheRightOptions) {
  const std::vector<std::vector<std::string>> lines = {
      {},
      {"walk", "--", "true"},
      {"run"},
      {"run", "--"},
      {"run", "true"},
      {"run", "--speed", "--", "true"},
      {"run", "--accel", "--", "true"},
      {"run", "--accel=", "--", "true"},
      {"run", "--stats", "", "--", "true"},
      {"run", "--stats", "--", "true"},
      {"run", "--managed=perhaps", "--", "true"},
      {"run", "--trust-hints", "--", "true"},
  };
  for (const auto& line : lines) {
    const End end = command(line);
    EXPECT_EQ(end.status, 2) << ::testing::PrintToString(line) << end.errors;
    EXPECT_THAT(end.errors, AllOf(StartsWith("gmac: "), HasSubstr("run")));
  }
  EXPECT_THAT(command({"run", "--speed", "--", "true"}).errors,
              AllOf(HasSubstr("--speed"), HasSubstr("--accel"), HasSubstr("--protocol"),
                    HasSubstr("--managed"), HasSubstr("--stats"), HasSubstr("--trace")));
}

TEST_F(Run, HelpIsNoError) {
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"--help"}, {"run", "--help"}, {"run", "-h", "--", "false"}}) {
    const End end = command(line);
    EXPECT_EQ(end.status, 0) << end.errors;
    EXPECT_THAT(end.output, HasSubstr("run"));
    EXPECT_EQ(end.errors, "");
  }
}

TEST_F(Run, WrongVariablesAreSaidBeforeTheProgramStarts) {
  const End end = command({"run", "--", "echo", "started"}, {{"GMAC_BLOCK_SIZE", "3"}});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.errors, AllOf(HasSubstr("GMAC_BLOCK_SIZE=\"3\""), HasSubstr("power of two")));
  EXPECT_EQ(end.output, "");
  const End warned = command({"run", "--", "echo", "started"}, {{"GMAC_PROTCOL", "lazy"}});
  EXPECT_EQ(warned.status, 0);
  EXPECT_THAT(warned.errors, HasSubstr("did you mean GMAC_PROTOCOL?"));
  EXPECT_EQ(warned.output, "started\n");
}

TEST_F(Run, AProgramThatIsNotThereIs127) {
  for (const char* name : {"no-such-program", "./no-such-program", "/no/such/program", ""}) {
    const End end = command({"run", "--", name});
    EXPECT_EQ(end.status, 127) << name;
    EXPECT_THAT(end.errors, AllOf(StartsWith("gmac: "), HasSubstr(name)));
  }
}

TEST_F(Run, AProgramThatIsNotExecutableIs126) {
  write("plain", "echo no", fs::perms::owner_read);
  fs::create_directory(folder_ / "folder");
  for (const char* name : {"./plain", "./folder", "/dev/null"}) {
    const End end = command({"run", "--", name});
    EXPECT_EQ(end.status, 126) << name;
    EXPECT_THAT(end.errors, AllOf(StartsWith("gmac: "), HasSubstr(name)));
  }
}

TEST_F(Run, ThePathIsSearchedAsTheShellDoes) {
  fs::create_directory(folder_ / "first");
  fs::create_directory(folder_ / "second");
  write("first/tool", "#!/bin/sh\necho first", fs::perms::owner_read);
  const std::map<std::string, std::string> path = {{"PATH", "/nowhere:first:second"}};
  // Only one that may not be executed.
  EXPECT_EQ(command({"run", "--", "tool"}, path).status, 126);
  write("second/tool", "#!/bin/sh\necho second", fs::perms::owner_all);
  EXPECT_EQ(command({"run", "--", "tool"}, path).output, "second\n");
  fs::permissions(folder_ / "first/tool", fs::perms::owner_all);
  EXPECT_EQ(command({"run", "--", "tool"}, path).output, "first\n");
  // An empty part is the current folder.
  write("tool", "#!/bin/sh\necho here", fs::perms::owner_all);
  EXPECT_EQ(command({"run", "--", "tool"}, {{"PATH", ":first"}}).output, "here\n");
  EXPECT_EQ(command({"run", "--", "tool"}, {{"PATH", "first:"}}).output, "first\n");
}

TEST_F(Run, ScriptsGetTheLibraryThroughTheirInterpreter) {
  write("script", "#! /bin/sh -e\nprintf %s \"$LD_PRELOAD\"", fs::perms::owner_all);
  EXPECT_EQ(command({"run", "--", "./script"}).output, libraryPath());
  write("bare", "printf %s \"$LD_PRELOAD\"", fs::perms::owner_all);
  EXPECT_EQ(command({"run", "--", "./bare"}).output, libraryPath());
  write("lost", "#!/no/such/interpreter\n", fs::perms::owner_all);
  const End lost = command({"run", "--", "./lost"});
  EXPECT_EQ(lost.status, 126);
  EXPECT_THAT(lost.errors, HasSubstr("/no/such/interpreter"));
}

// The probe without the entry that names the dynamic linker is what a statically linked program is
// to the command.
void removeDynamicLinker(const fs::path& path) {
  std::string bytes = contents(path);
  Elf64_Ehdr header;
  ASSERT_GE(bytes.size(), sizeof header);
  bytes.copy(reinterpret_cast<char*>(&header), sizeof header);
  bool removed = false;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    char* const at = bytes.data() + header.e_phoff + i * sizeof(Elf64_Phdr);
    auto* const type = reinterpret_cast<Elf64_Word*>(at);
    if (*type == PT_INTERP) {
      *type = PT_NULL;
      removed = true;
    }
  }
  ASSERT_TRUE(removed);
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST_F(Run, AStaticallyLinkedProgramIsRefused) {
  const fs::path program = copyOfProbe("static");
  removeDynamicLinker(program);
  for (const std::string& name :
       {program.string(),
        write("script", "#!" + program.string() + "\n", fs::perms::owner_all).string()}) {
    const End end = command({"run", "--", name});
    EXPECT_EQ(end.status, 126);
    EXPECT_THAT(end.errors, AllOf(HasSubstr(program.string()), HasSubstr("statically linked")));
  }
}

TEST_F(Run, AProgramOfAnotherMachineIsRefused) {
  const fs::path program = copyOfProbe("foreign");
  std::string bytes = contents(program);
  bytes[EI_CLASS] = ELFCLASS32;
  std::ofstream(program, std::ios::binary) << bytes;
  const End end = command({"run", "--", program.string()});
  EXPECT_EQ(end.status, 126);
  EXPECT_THAT(end.errors, HasSubstr("no program of this machine"));
}

TEST_F(Run, DamagedProgramsAreRefusedWithoutHarm) {
  const std::string bytes = contents(probePath());
  Elf64_Ehdr header;
  ASSERT_GE(bytes.size(), sizeof header);
  bytes.copy(reinterpret_cast<char*>(&header), sizeof header);
  const std::size_t tableEnd = header.e_phoff + header.e_phnum * sizeof(Elf64_Phdr);
  std::size_t loadedEnd = 0;
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    bytes.copy(reinterpret_cast<char*>(&segment), sizeof segment,
               header.e_phoff + i * sizeof segment);
    loadedEnd = std::max(loadedEnd, segment.p_offset + segment.p_filesz);
  }
  for (const std::size_t size : {std::size_t{4}, sizeof header - 1, sizeof header,
                                 sizeof header + 10, tableEnd, tableEnd + 64, loadedEnd - 1}) {
    const fs::path program = folder_ / ("cut" + std::to_string(size));
    std::ofstream(program, std::ios::binary) << bytes.substr(0, size);
    fs::permissions(program, fs::perms::owner_all);
    const End end = command({"run", "--", program.string()});
    EXPECT_EQ(end.status, 126) << size;
    EXPECT_EQ(end.signal, 0) << size;
    EXPECT_THAT(end.errors, AllOf(HasSubstr("is cut short or damaged: it has " +
                                            std::to_string(size) + " bytes"),
                                  ::testing::Not(HasSubstr("statically"))));
  }
}

TEST_F(Run, ProgramsWhoseTableLiesOutsideTheFileAreRefusedWithoutHarm) {
  for (const Elf64_Off offset : {Elf64_Off{1} << 40, ~Elf64_Off{0} - 8, ~Elf64_Off{0}}) {
    const fs::path program = copyOfProbe("damaged");
    std::string bytes = contents(program);
    bytes.replace(offsetof(Elf64_Ehdr, e_phoff), sizeof offset,
                  reinterpret_cast<const char*>(&offset), sizeof offset);
    std::ofstream(program, std::ios::binary) << bytes;
    const End end = command({"run", "--", program.string()});
    EXPECT_EQ(end.status, 126) << offset;
    EXPECT_EQ(end.signal, 0) << offset;
    fs::remove(program);
  }
}

TEST_F(Run, ASetUserIdProgramIsRefused) {
  fs::path program = copyOfProbe("setuid");
  constexpr uid_t kSomebodyElse = 65534;
  if (getuid() == 0) {
    ASSERT_EQ(chown(program.c_str(), kSomebodyElse, kSomebodyElse), 0);
    ASSERT_EQ(chmod(program.c_str(), 04755), 0);
  } else {
    program = "/usr/bin/passwd";
    struct stat status {};
    if (stat(program.c_str(), &status) != 0 || (status.st_mode & S_ISUID) == 0) {
      GTEST_SKIP() << "no set-user-ID program here, and only root can make one";
    }
  }
  const End end = command({"run", "--", program.string()});
  EXPECT_EQ(end.status, 126);
  EXPECT_THAT(end.errors, AllOf(HasSubstr(program.string()), HasSubstr("is set-user-ID")));
}

TEST_F(Run, TheAddressSanitizersRuntimeStaysFirst) {
  // Preloaded by the user: a library of that name, whatever is in it.
  const fs::path runtime = folder_ / "libasan.so.8";
  fs::copy_file("/lib/x86_64-linux-gnu/libm.so.6", runtime);
  EXPECT_EQ(seen("LD_PRELOAD", {}, {{"LD_PRELOAD", runtime.string() + ":libdl.so.2"}}),
            runtime.string() + ":" + libraryPath() + ":libdl.so.2");
}

TEST_F(Run, InstalledTheLibraryIsFoundBesideTheCommand) {
  fs::create_directories(folder_ / "prefix/bin");
  fs::create_directories(folder_ / "prefix/lib");
  fs::copy_file(commandPath(), folder_ / "prefix/bin/gmac");
  fs::create_symlink(folder_ / "prefix/bin/gmac", folder_ / "link");
  const auto installed = [&](const std::vector<std::string>& words) {
    std::vector<std::string> line = {"run", "--", (folder_ / "link").string()};
    line.insert(line.end(), words.begin(), words.end());
    return command(line);
  };
  const End lost = installed({"run", "--", "true"});
  EXPECT_EQ(lost.status, 1);
  EXPECT_THAT(lost.errors, HasSubstr("no libgmac.so"));
  fs::copy_file(libraryPath(), folder_ / "prefix/lib/libgmac.so");
  const End found = installed({"run", "--", "sh", "-c", "printf %s $LD_PRELOAD"});
  EXPECT_EQ(found.status, 0) << found.errors;
  // Before the one that the outer command preloaded.
  EXPECT_THAT(found.output, AllOf(StartsWith((folder_ / "prefix/lib/libgmac.so:").string()),
                                  EndsWith(libraryPath())));
}

}  // namespace
}  // namespace gmac::testing
