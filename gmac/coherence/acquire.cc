// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/acquire.h"

#include <string>

#include "gmac/coherence/blocks.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/policies/coarsening.h"
#include "gmac/coherence/policies/splitting.h"
#include "gmac/coherence/repeated_launches.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {

Status Acquire::sync() {
  const Timed timed(Phase::kSync);
  const TraceSpan span("call", "sync");
  stats().syncs.add();
  if (readBacks_.foundSettled()) {
    return {};
  }
  const Walk walk(blocks_);
  Lock lock(mutex_, os::SignalsBlocked::When::kWhereHandled);
  coherence::DeviceWait wait;
  if (readBacks_.any()) {
    wait.begun = true;
    readBacks_.beforeWait(lock, std::nullopt);
  }
  const Status status = waits_.forEverything(lock);
  const std::string words = status.ok() ? "" : lastErrorText();
  const Status fetched = fetchAll(lock);
  if (!status.ok()) {
    recordError(status.code(), words);
    return status;
  }
  if (readBacks_.any()) {
    splitting_.afterWait();
    readBacks_.afterWait(lock, wait, ledger_.times().now());
  }
  return fetched;
}

void Acquire::beforeDeviceWait(std::optional<accel::NativeStream> stream,
                               coherence::DeviceWait& wait) {
  if (!readBacks_.any() || readBacks_.foundSettled()) {
    return;
  }
  const Walk walk(blocks_);
  Lock lock(mutex_, os::SignalsBlocked::When::kWhereHandled);
  // Of an event only the program knows where it was recorded.
  if (stream == accel::kForeignStream) {
    stream = readBacks_.streamOfEvent();
    stream = stream ? stream : ledger_.onlyStream();
    if (!stream) {
      readBacks_.noteWait();
      return;
    }
  }
  wait.begun = true;
  wait.stream = stream;
  readBacks_.beforeWait(lock, stream);
}

Status Acquire::afterDeviceWait(const coherence::DeviceWait& wait) {
  if (ledger_.settled()) {
    return {};
  }
  if (readBacks_.any()) {
    const Walk walk(blocks_);
    const std::uint64_t now = ledger_.times().now();
    Lock lock(mutex_, os::SignalsBlocked::When::kWhereHandled);
    splitting_.afterWait();
    readBacks_.afterWait(lock, wait, now);
    repeated_.allow(lock, readBacks_.waitsWithoutLock());
  }
  if (!blocks_.protocol().fetchesAtSync()) {
    return {};
  }
  const Walk walk(blocks_);
  Lock lock(mutex_, os::SignalsBlocked::When::kWhereHandled);
  const bool pending = ledger_.runningCall().value != 0 || ledger_.runningStreamWork().value != 0;
  return pending ? Status() : fetchAll(lock);
}

// For a protocol that fetches at a sync (batch-update). An object that cannot be fetched, as its
// device is gone, does not keep the others; the first error.
Status Acquire::fetchAll(Lock& lock) {
  if (!blocks_.protocol().fetchesAtSync()) {
    return {};
  }
  const std::byte* position = nullptr;
  Status status;
  std::string words;
  while (Object* object = index_.firstEndingAfter(position)) {
    if (object->closing) {
      position = object->end();
      continue;
    }
    BlockIndex begin = object->all().begin;
    while (begin < object->all().end && (*object)[begin].state != State::kInvalid) {
      begin = begin + 1;
    }
    if (begin == object->all().end) {
      position = object->end();
      continue;
    }
    if (object->inTransit()) {
      lock.waitForChange();
      continue;
    }
    // Work submitted there may write the object, and has no ticket yet.
    if (ledger_.submissionElsewhere()) {
      waits_.forSubmission(lock);
      continue;
    }
    BlockIndex end = begin;
    while (end < object->all().end && (*object)[end].state == State::kInvalid) {
      end = end + 1;
    }
    bool waited = false;
    GMAC_TRY(waits_.forWriters(lock, *object, object->bytesOf(BlockRange{begin, end}), &waited));
    if (waited) {
      continue;
    }
    if (const Status fetched = blocks_.fetch(lock, *object, {begin, end}, Event::kSync);
        !fetched.ok()) {
      auto again = coarsening_.retry(lock, fetched);
      if (!again.ok()) {
        if (status.ok()) {
          status = again.status();
          words = lastErrorText();
        }
        position = object->end();
      }
    }
  }
  if (!status.ok()) {
    recordError(status.code(), words);
  }
  return status;
}

}  // namespace gmac
