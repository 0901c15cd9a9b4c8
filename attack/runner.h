// SPDX-License-Identifier: Apache-2.0
//
// Makes one attack: its process, the limit of its time, and what it leaves.
#ifndef GMAC_ATTACK_RUNNER_H_
#define GMAC_ATTACK_RUNNER_H_

#include <string>
#include <vector>

namespace attack {

struct Planned {
  std::string name;
  int limitSeconds = 0;
  bool mayEndWithMessage = false;
};

// The arguments of every attack's process.
struct Surroundings {
  std::string subject;  // the program with the attacks
  std::string library;  // that it preloads
  std::string command;  // gmac
  int seconds = 0;      // of attacks without an end of their own
};

enum class Verdict { kPassed, kFailed, kSkipped };

struct Result {
  Verdict verdict = Verdict::kFailed;
  double seconds = 0;
  std::string why;     // for what did not pass
  std::string output;  // all of it
};

// From now on, processes whose parents have ended are this process's children. Throws
// std::runtime_error where the system refuses.
void adoptOrphans();
// The attacks that the program has. Throws std::runtime_error where it cannot be run.
std::vector<Planned> listAttacks(const Surroundings& surroundings);
// Makes an attack in a session and a folder of its own, which is removed afterwards. After it no
// process of it is left: one that does not end by itself is a failure, and is killed.
Result makeAttack(const Planned& attack, const Surroundings& surroundings);

}  // namespace attack

#endif  // GMAC_ATTACK_RUNNER_H_
