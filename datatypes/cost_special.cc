// SPDX-License-Identifier: Apache-2.0
//
// The lines of the cost table that are no plain pack.
#include <fmt/core.h>

#include <cstring>
#include <memory>

#include "bench/median.h"
#include "datatypes/cost.h"
#include "datatypes/engine.h"
#include "datatypes/failure.h"
#include "datatypes/first_pack.h"
#include "datatypes/shared_source.h"
#include "gmac/observe/stats.h"

namespace datatypes {
namespace {

// Runs `measure`, which fills in a row; what fails in it is the row's.
template <typename Measure>
void addRow(Session& session, const char* group, const std::string& work, const std::string& size,
            const char* into, const Measure& measure) {
  announce(fmt::format("{}: {}, {}", group, work, size));
  Row row;
  row.group = group;
  row.work = work;
  row.size = size;
  row.into = into;
  try {
    measure(row);
  } catch (const Failure& failure) {
    row.error = failure.what();
  }
  session.results().rows.push_back(std::move(row));
}

void firstUse(Session& session, std::int64_t n) {
  const Workload cached = triangle(n);
  addRow(session, "first-use", "triangle, first use", cached.size, "device", [&](Row& row) {
    Gpu& gpu = session.gpu();
    const std::byte* const source = gpu.source(cached.extent);
    std::byte* const target = gpu.target(Place::kDevice, cached.bytes);
    const Type type = cached.type();
    type.commit();
    // A layout that the engine has not met, each time: an equal one may be known already.
    std::int64_t variant = 0;
    std::unique_ptr<Type> fresh;
    const auto renew = [&] {
      gpu.synchronize();
      fresh = std::make_unique<Type>(triangleVariant(n, variant++).type());
      fresh->commit();
    };
    const auto packOf = [&](const Type& one) {
      (void)pack(target, source, one, {.stream = gpu.stream()});
      gpu.synchronize();
    };
    renew();
    gpu.clear(target, cached.bytes);
    packOf(*fresh);
    const std::vector<std::byte> expected = packedPattern(triangleVariant(n, 0));
    std::vector<std::byte> found(expected.size());
    gpu.read(found.data(), target, cached.bytes);
    requireEqual("the first use", expected, found);
    const Times times(
        {{"engine, cached", [&] { packOf(type); }, {}}, {"engine", [&] { packOf(*fresh); }, renew}},
        session.rounds());
    row.us = times.all();
    row.verdicts.push_back(
        {"<= 3 times cached", 3, times.ratio("engine", "engine, cached").value(), "", false});
  });
}

void firstPack(Session& session, Place into) {
  const Workload workload = firstPackWorkload(into);
  addRow(session, "first-use", workload.name + ", first use", workload.size,
         into == Place::kDevice ? "device" : "pinned", [&](Row& row) {
           std::vector<double> first;
           std::vector<double> later;
           for (std::size_t i = 0; i < session.fewRounds(); ++i) {
             const FirstPack one = firstPackOfNewProcess(into);
             first.push_back(one.first);
             later.push_back(one.later);
           }
           row.us = {{"engine", gmac::bench::median(first)},
                     {"engine, cached", gmac::bench::median(later)}};
           row.verdicts.push_back({"<= 1000 us over cached", 1000,
                                   row.us["engine"] - row.us["engine, cached"], " us", false});
         });
}

void smallPack(Session& session, std::int64_t bytes) {
  const Workload workload = vector(8, 512, bytes);
  addRow(session, "small", workload.name, workload.size, "device", [&](Row& row) {
    Gpu& gpu = session.gpu();
    const std::byte* const source = gpu.source(workload.extent);
    std::byte* const target = gpu.target(Place::kDevice, workload.bytes);
    const Type type = workload.type();
    type.commit();
    const Manner manner{.stream = gpu.stream()};
    adsmPackReport_t report{};
    const auto engine = [&] { (void)pack(target, source, type, manner); };
    const auto hand = [&] { gpu.pack(workload.hand, target, source); };
    const auto wait = [&] { gpu.synchronize(); };
    gpu.clear(target, bytes);
    (void)pack(target, source, type, manner, &report);
    std::vector<std::byte> found(static_cast<std::size_t>(bytes));
    gpu.read(found.data(), target, bytes);
    requireEqual("engine", packedPattern(workload), found);
    gpu.clear(target, bytes);
    hand();
    gpu.read(found.data(), target, bytes);
    requireEqual("hand", packedPattern(workload), found);
    const Times times({{"engine",
                        [&] {
                          engine();
                          wait();
                        },
                        {}},
                       {"hand",
                        [&] {
                          hand();
                          wait();
                        },
                        {}},
                       {"engine, launch only", engine, wait},
                       {"hand, launch only", hand, wait}},
                      session.rounds());
    gpu.synchronize();
    row.us = times.all();
    row.details["launches"] = report.launches;
    row.method = adsmMethodName(report.method);
    row.verdicts = {{"<= 1 us over hand", 1, times.over("engine", "hand").value(), " us", false},
                    {"<= 1 us over hand's launch", 1,
                     times.over("engine, launch only", "hand, launch only").value(), " us", false},
                    {"1 launch", 1, static_cast<double>(report.launches), "", false}};
  });
}

void commitOf(Session& session, const std::string& work, const std::string& size,
              const std::function<Type()>& make, double limitUs) {
  addRow(session, "commit", work, size, "", [&](Row& row) {
    std::unique_ptr<Type> type;
    const auto renew = [&] {
      type.reset();
      type = std::make_unique<Type>(make());
    };
    const Times times({{"engine", [&] { type->commit(); }, renew},
                       {"create and commit",
                        [&] {
                          renew();
                          type->commit();
                        },
                        {}}},
                      session.rounds());
    row.us = times.all();
    row.details["layout"] = type->describe();
    row.verdicts.push_back({fmt::format("<= {:.0f} us", limitUs), limitUs,
                            times.microseconds("engine"), " us", false});
  });
}

// The runtime's counters so far.
struct Counted {
  std::uint64_t faults = gmac::stats().readFaults.value() + gmac::stats().writeFaults.value();
  std::uint64_t bytesToHost = gmac::stats().bytesToHost.value();
};

void sharedFace(Session& session, SharedSource& grid, Face which, std::int64_t n) {
  const Workload workload = face(which, n);
  addRow(
      session, "shared", workload.name + " of a shared grid", workload.size, "cpu", [&](Row& row) {
        const Type type = workload.type();
        type.commit();
        const std::vector<std::byte> expected = packedPattern(workload);
        std::vector<std::byte> found(expected.size(), std::byte{0x5a});
        grid.write();
        const Counted before;
        adsmPackReport_t report{};
        (void)pack(found.data(), grid.get(), type, {}, &report);
        const Counted after;
        requireEqual("engine", expected, found);
        // The same with ordinary reads, which fetch whole blocks, and of the whole grid.
        const auto read = [&] {
          std::byte* to = found.data();
          workload.pieces([&](std::int64_t offset, std::int64_t bytes) {
            std::memcpy(to, grid.get() + offset, static_cast<std::size_t>(bytes));
            to += bytes;
          });
        };
        const auto fetchAll = [&] {
          constexpr std::int64_t kPage = 4096;
          for (std::int64_t offset = 0; offset < grid.bytes(); offset += kPage) {
            (void)*const_cast<volatile std::byte*>(grid.get() + offset);
          }
        };
        const auto write = [&] { grid.write(); };
        const Times times(
            {{"engine", [&] { (void)pack(found.data(), grid.get(), type, {}); }, write},
             {"reads", read, write},
             {"fetch everything", fetchAll, write}},
            session.fewRounds());
        row.us = times.all();
        const auto faults = static_cast<double>(after.faults - before.faults);
        const auto counted = static_cast<double>(after.bytesToHost - before.bytesToHost);
        row.details = {{"gridBytes", grid.bytes()},
                       {"bytesAcross", report.bytesAcross},
                       {"bytesToHostCounted", counted},
                       {"faults", faults}};
        row.method = adsmMethodName(report.method);
        const auto faceBytes = static_cast<double>(workload.bytes);
        row.verdicts = {{"<= one face moved", faceBytes,
                         std::max(counted, static_cast<double>(report.bytesAcross)), " B", false},
                        {"no fault", 0, faults, "", false}};
      });
}

}  // namespace

void measureFirstUse(Session& session) {
  firstUse(session, 4096);
  firstUse(session, 8192);
  firstPack(session, Place::kDevice);
  firstPack(session, Place::kPinned);
}

void measureSmallPacks(Session& session) {
  for (std::int64_t bytes = 256; bytes <= 8 * kKiB; bytes *= 2) smallPack(session, bytes);
}

void measureCommits(Session& session) {
  constexpr std::int64_t kBlocks = kMiB;
  const Workload equal = indexed(8, 8 * kBlocks);
  commitOf(session, "commit, equal blocks", "1 Mi blocks", equal.type, 20000);
  const Workload unequal = indexedPairs(kBlocks / 2);
  commitOf(session, "commit, unequal blocks", "1 Mi blocks", unequal.type, 20000);
  commitOf(session, "commit, vector of vectors", "64 MiB", nestedVector(64 * kMiB).type, 5);
  commitOf(session, "commit, 4-D subarray", "side 32", subarray4d(32).type, 5);
}

void measureSharedFaces(Session& session) {
  const std::int64_t n = session.hasGpu() ? 512 : 64;
  std::unique_ptr<SharedSource> grid;
  try {
    grid = std::make_unique<SharedSource>(n * n * n * 8);
  } catch (const Failure& failure) {
    addRow(session, "shared", "a face of a shared grid", fmt::format("{}^3", n), "cpu",
           [&](Row& row) { row.error = failure.what(); });
    return;
  }
  for (const Face which : {Face::kXy, Face::kXz, Face::kYz}) sharedFace(session, *grid, which, n);
}

}  // namespace datatypes
