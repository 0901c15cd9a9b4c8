// SPDX-License-Identifier: Apache-2.0
//
// protocol --table: the coherence protocols as the library has them.
#include <CLI/CLI.hpp>
#include <iostream>

#include "gmac/protocols/describe.h"

int main(int argc, char** argv) {
  CLI::App app("The coherence protocols.", "protocol");
  bool table = false;
  app.add_flag("--table", table,
               "prints what every event does to a block in every state, in Markdown")
      ->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  std::cout << gmac::describeProtocols() << "\nIn transit, with all protocols:\n\n"
            << gmac::describeTransits();
  return 0;
}
