// SPDX-License-Identifier: Apache-2.0
//
// Prints protocols for people.
#ifndef GMAC_PROTOCOLS_DESCRIBE_H_
#define GMAC_PROTOCOLS_DESCRIBE_H_

#include <string>

#include "gmac/protocols/protocol.h"

namespace gmac {

const char* eventName(Event event) noexcept;
const char* transitName(Transit transit) noexcept;
const char* stepName(TransitStep step) noexcept;

// The protocol's whole table in Markdown: a row for each state, a column for each event; each cell
// says what moves and the next state, or that the block stays as it is.
std::string describeTable(const Protocol& protocol);

// The tables of all protocols, each with its name before it.
std::string describeProtocols();

// The table of transits: a row for each, a column for each step, with the transit after it.
std::string describeTransits();

}  // namespace gmac

#endif  // GMAC_PROTOCOLS_DESCRIBE_H_
