// SPDX-License-Identifier: Apache-2.0
#include "gmac/session/mpi_settings.h"

#include <cstdlib>

#include "gmac/base/api_call.h"
#include "gmac/session/config.h"

adsmError_t gmacReadMpiSettings(gmacMpiSettings* settings) {
  return gmac::api::guarded("gmacReadMpiSettings", [&]() -> gmac::Status {
    const auto config = gmac::readConfig([](const char* name) { return std::getenv(name); });
    if (!config.ok()) {
      return config.status();
    }
    *settings = {config->mpiTickets ? 1 : 0,
                 config->statsPath.empty() ? 0 : 1,
                 static_cast<int64_t>(config->leastTicketBytes),
                 static_cast<int64_t>(config->ticketRoomBytes),
                 static_cast<int64_t>(config->leastFragmentedBytes),
                 static_cast<int64_t>(config->answerWait)};
    return {};
  });
}

int gmacLogLevel(void) {
  return static_cast<int>(gmac::logLevel([](const char* name) { return std::getenv(name); }));
}
