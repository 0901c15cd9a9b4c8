// SPDX-License-Identifier: Apache-2.0
//
// The program to be run: where it is, and whether a library can be preloaded into it.
#ifndef GMAC_TOOLS_GMAC_PROGRAM_H_
#define GMAC_TOOLS_GMAC_PROGRAM_H_

#include <string>
#include <vector>

namespace gmac::command {

// The file that a shell would run for `name`: itself when it has a slash, else the first of that
// name in the folders of `searchPath` (NULL: the system's default) that may be executed. Throws
// Failure: kNotFound, or kCannotRun for a folder or a file that may not be executed.
std::string findProgram(const std::string& name, const char* searchPath);

// Throws Failure (kCannotRun), with the reason, when the dynamic linker would not load a preloaded
// library into the file at `path`, or into the interpreter that runs it: it is linked statically,
// is of another machine, or gets rights that its user has not.
void checkCanPreload(const std::string& path);

// The libraries that the file at `path`, or the interpreter that runs it, is linked with.
std::vector<std::string> librariesOf(const std::string& path);

}  // namespace gmac::command

#endif  // GMAC_TOOLS_GMAC_PROGRAM_H_
