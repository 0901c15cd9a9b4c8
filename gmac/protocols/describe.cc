// SPDX-License-Identifier: Apache-2.0
#include "gmac/protocols/describe.h"

#include <memory>

#include "gmac/protocols/table.h"

namespace gmac {
namespace {

const char* moveName(Move move) {
  switch (move) {
    case Move::kNone:
      return "";
    case Move::kFetch:
      return "fetch, ";
    case Move::kFlush:
      return "flush, ";
  }
  return "?";
}

template <typename Columns, typename Name>
std::string heading(const char* rows, const Columns& columns, Name name) {
  std::string table = std::string("| ") + rows + " |";
  std::string rule = "\n|---|";
  for (const auto column : columns) {
    table.append(" ").append(name(column)).append(" |");
    rule.append("---|");
  }
  return table + rule + "\n";
}

}  // namespace

const char* eventName(Event event) noexcept {
  switch (event) {
    case Event::kRead:
      return "read";
    case Event::kWrite:
      return "write";
    case Event::kReadPart:
      return "read, a window is enough";
    case Event::kWritePart:
      return "write, a window is enough";
    case Event::kCall:
      return "call that may write";
    case Event::kCallRead:
      return "call that only reads";
    case Event::kSync:
      return "sync";
    case Event::kEvict:
      return "eviction";
  }
  return "?";
}

const char* transitName(Transit transit) noexcept {
  switch (transit) {
    case Transit::kSettled:
      return "settled";
    case Transit::kFetching:
      return "fetching";
    case Transit::kOpening:
      return "opening";
    case Transit::kFlushing:
      return "flushing";
    case Transit::kAwaiting:
      return "awaiting";
    case Transit::kNever:
      return "never";
  }
  return "?";
}

const char* stepName(TransitStep step) noexcept {
  switch (step) {
    case TransitStep::kFetch:
      return "fetch";
    case TransitStep::kOpen:
      return "open";
    case TransitStep::kFlush:
      return "flush";
    case TransitStep::kAwait:
      return "await readers";
    case TransitStep::kEnd:
      return "end";
  }
  return "?";
}

std::string describeTable(const Protocol& protocol) {
  std::string table = heading("state", kEvents, &eventName);
  for (const State state : kStates) {
    table.append("| `").append(stateName(state)).append("` |");
    for (const Event event : kEvents) {
      const Transition transition = protocol.on(state, event);
      if (transition == Transition{Move::kNone, state}) {
        table.append(" stays |");
      } else {
        table.append(" ")
            .append(moveName(transition.move))
            .append("`")
            .append(stateName(transition.next))
            .append("` |");
      }
    }
    table.append("\n");
  }
  return table;
}

std::string describeProtocols() {
  std::string text;
  for (const NamedProtocol& protocol : kProtocols) {
    text.append(text.empty() ? "" : "\n").append("`").append(protocol.name).append("`:\n\n");
    text.append(describeTable(*protocol.make({})));
  }
  return text;
}

std::string describeTransits() {
  std::string table = heading("transit", kTransitSteps, &stepName);
  for (const Transit transit : kTransits) {
    std::string before;
    for (const bool held : {false, true}) {
      std::string cells;
      for (const TransitStep step : kTransitSteps) {
        cells.append(" ").append(transitName(after(transit, held, step))).append(" |");
      }
      if (cells != before) {
        table.append("| ").append(transitName(transit)).append(held ? ", held |" : " |");
        table.append(cells).append("\n");
      }
      before = cells;
    }
  }
  return table;
}

}  // namespace gmac
