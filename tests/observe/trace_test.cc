// SPDX-License-Identifier: Apache-2.0
#include "gmac/observe/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace gmac {
namespace {

using nlohmann::json;

std::string textOfLastTrace;

// Each trace is made by a child process of its own, as a trace is started once per process.
template <typename Body>
json traceOf(Body body, std::size_t capacity = 1000) {
  const std::string path = ::testing::TempDir() + "trace." + std::to_string(::getpid());
  const pid_t child = ::fork();
  if (child == 0) {
    if (!startTrace(path, capacity).ok()) std::_Exit(3);
    body();
    std::exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::ifstream file(path);
  textOfLastTrace.assign(std::istreambuf_iterator<char>(file), {});
  json trace = json::parse(textOfLastTrace, nullptr, false);
  ::unlink(path.c_str());
  EXPECT_FALSE(trace.is_discarded());
  return trace;
}

std::vector<json> eventsOf(const json& trace) {
  std::vector<json> events;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "M") events.push_back(event);
  }
  return events;
}

// The names that viewers show for the numbers of tracks.
std::map<int, std::string> trackNamesOf(const json& trace) {
  std::map<int, std::string> names;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M" && event.at("name") == "thread_name") {
      EXPECT_TRUE(names.emplace(event.at("tid"), event.at("args").at("name")).second) << event;
    }
  }
  return names;
}

TEST(Trace, ASpanHasItsStartDurationAndArguments) {
  const json trace = traceOf([] {
    TraceSpan outer("call", "release", {"objects", 3});
    TraceSpan inner("copy", "flush", {"bytes", std::uint64_t{1} << 40});
    inner.setSecond({"blocks", 2});
  });
  const auto events = eventsOf(trace);
  ASSERT_EQ(events.size(), 2u);
  const json& outer = events[0];
  const json& inner = events[1];
  EXPECT_EQ(inner.at("ph"), "X");
  EXPECT_EQ(inner.at("cat"), "copy");
  EXPECT_EQ(inner.at("name"), "flush");
  EXPECT_EQ(inner.at("args"), (json{{"bytes", std::uint64_t{1} << 40}, {"blocks", 2}}));
  EXPECT_EQ(outer.at("args"), (json{{"objects", 3}}));
  const double end = outer.at("ts").get<double>() + outer.at("dur").get<double>();
  EXPECT_LE(outer.at("ts").get<double>(), inner.at("ts").get<double>());
  EXPECT_GE(end + 0.001, inner.at("ts").get<double>() + inner.at("dur").get<double>());
  EXPECT_EQ(outer.at("pid"), outer.at("tid"));
  EXPECT_EQ(trace.at("otherData").at("droppedEvents"), 0);
}

// Whatever a viewer makes of it, it has the events, and their times are microseconds.
TEST(Trace, BeginsWithTheEventsAndNamesNoUnit) {
  const json trace = traceOf([] { const TraceSpan span("call", "release"); });
  EXPECT_FALSE(trace.contains("displayTimeUnit"));
  EXPECT_LT(textOfLastTrace.find("\"traceEvents\""), textOfLastTrace.find("\"otherData\""));
  EXPECT_EQ(textOfLastTrace.rfind("{\"traceEvents\":[", 0), 0u);
}

// As viewers stack them, also where the clock has not moved in between.
TEST(Trace, WhatEnclosesComesFirst) {
  const auto events = eventsOf(traceOf([] {
    internal::appendTraceEvent("call", "inner", 500, 10, {}, {});
    internal::appendTraceEvent("call", "innermost", 505, 0, {}, {});
    internal::appendTraceEvent("call", "outer", 500, 20, {}, {});
    internal::appendTraceEvent("call", "first", 400, 50, {}, {});
  }));
  std::vector<std::string> names;
  for (const json& event : events) names.push_back(event.at("name"));
  EXPECT_EQ(names, (std::vector<std::string>{"first", "outer", "inner", "innermost"}));
}

TEST(Trace, AnInstantHasNoDuration) {
  const auto events = eventsOf(traceOf([] { traceInstant("fault", "write \"fault\""); }));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("ph"), "i");
  EXPECT_EQ(events[0].at("name"), "write \"fault\"");
  EXPECT_FALSE(events[0].contains("dur"));
  EXPECT_FALSE(events[0].contains("args"));
}

TEST(Trace, AFullBufferCountsWhatItDrops) {
  const json trace = traceOf(
      [] {
        for (std::uint64_t i = 0; i < 25; ++i) traceInstant("test", "event", {"i", i});
      },
      10);
  EXPECT_EQ(eventsOf(trace).size(), 10u);
  EXPECT_EQ(trace.at("otherData").at("droppedEvents"), 15);
}

TEST(Trace, ThreadsKeepTheirOwnNumbersAndLoseNothing) {
  const json trace = traceOf(
      [] {
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i) {
          threads.emplace_back([] {
            for (int j = 0; j < 250; ++j) traceInstant("test", "event");
          });
        }
        for (std::thread& thread : threads) thread.join();
      },
      2000);
  std::map<int, int> perThread;
  for (const json& event : eventsOf(trace)) ++perThread[event.at("tid").get<int>()];
  ASSERT_EQ(perThread.size(), 4u);
  for (const auto& [thread, count] : perThread) EXPECT_EQ(count, 250) << thread;
}

TEST(Trace, TracksHaveTheNamesOfTheirThreads) {
  const json trace = traceOf([] {
    traceInstant("test", "main");
    for (const char* const name : {"first \"quoted\"", "second", "not UTF-8 \xC3("}) {
      std::thread([name] {
        ASSERT_EQ(::pthread_setname_np(::pthread_self(), name), 0);
        traceInstant("test", name[0] == 'n' ? "third" : name);
      }).join();
    }
    std::thread([] {}).join();  // has no track
  });
  const auto names = trackNamesOf(trace);
  std::map<std::string, std::string> nameByEvent;
  for (const json& event : eventsOf(trace)) {
    const auto found = names.find(event.at("tid"));
    ASSERT_NE(found, names.end()) << event;
    nameByEvent[event.at("name")] = found->second;
  }
  EXPECT_EQ(nameByEvent,
            (std::map<std::string, std::string>{{"main", "main thread"},
                                                {"first \"quoted\"", "first \"quoted\""},
                                                {"second", "second"},
                                                {"third", "not UTF-8 ?("}}));
  EXPECT_EQ(names.size(), 4u);
  for (const json& event : trace.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), trace.at("traceEvents").at(0).at("pid"));
  }
}

TEST(Trace, MoreThreadsThanHaveNamesLoseNoEvents) {
  constexpr std::size_t kThreads = internal::kNamedTracks + 10;
  const json trace = traceOf(
      [] {
        for (std::size_t i = 0; i < kThreads; ++i) {
          std::thread([] { traceInstant("test", "event"); }).join();
        }
        traceInstant("test", "main");
      },
      2 * kThreads);
  EXPECT_EQ(eventsOf(trace).size(), kThreads + 1);
  const auto names = trackNamesOf(trace);
  EXPECT_GT(names.size(), 0u);
  EXPECT_LE(names.size(), internal::kNamedTracks);
}

TEST(Trace, OffNothingIsKept) {
  ASSERT_FALSE(tracing());
  traceInstant("test", "before");
  { TraceSpan span("test", "before"); }
  const auto events = eventsOf(traceOf([] { traceInstant("test", "after"); }));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("name"), "after");
}

TEST(TraceDeathTest, AFileThatCannotBeWrittenIsSaid) {
  EXPECT_EXIT(
      {
        if (startTrace("/nowhere/trace.json", 10).ok()) std::exit(0);
      },
      ::testing::ExitedWithCode(0), "gmac: the trace is lost: cannot create /nowhere/trace.json");
}

}  // namespace
}  // namespace gmac
