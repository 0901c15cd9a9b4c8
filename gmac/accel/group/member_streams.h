// SPDX-License-Identifier: Apache-2.0
//
// The application's own streams in a group: those of its first member.
#ifndef GMAC_ACCEL_GROUP_MEMBER_STREAMS_H_
#define GMAC_ACCEL_GROUP_MEMBER_STREAMS_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "gmac/accel/commands.h"
#include "gmac/accel/group/tickets.h"
#include "gmac/accel/native_streams.h"
#include "gmac/base/status.h"

namespace gmac::accel {

// As the member's, with tickets of the group. Owned by the group.
class MemberStreams final : public NativeStreams {
 public:
  explicit MemberStreams(NativeStreams& member) : member_(member) {}

  // Once, before anything else. `wait(ticket)`: for another member's work. `leaves()`: the context
  // is about to go, and what the group has made in it must not outlive it.
  void serve(std::function<Status(Ticket)> wait, std::function<void()> leaves) {
    wait_ = std::move(wait);
    leaves_ = std::move(leaves);
  }

  Status check(NativeStream stream) const override { return member_.check(stream); }
  bool perThread(NativeStream stream) const noexcept override { return member_.perThread(stream); }
  bool capturing(NativeStream stream) const noexcept override { return member_.capturing(stream); }
  // (The tickets are the member's: they go back to it alone.)
  Result<Fence> fence(NativeStream stream, const Fence& earlier) override {
    return member_.fence(stream, earlier);
  }
  Fence newest() const noexcept override { return member_.newest(); }
  // No stream waits for another member: the caller does.
  Status follow(NativeStream stream, Ticket ticket) override {
    return memberOf(ticket) != 0 ? wait_(ticket) : member_.follow(stream, ofMember(ticket));
  }
  Result<Ticket> mark(NativeStream stream, Ticket earlier) override {
    const Result<Ticket> ticket = member_.mark(stream, ofMember(earlier));
    return ticket.ok() ? ofGroup(*ticket, 0) : ticket;
  }
  Result<NativeStream> sideStream() override { return member_.sideStream(); }
  Status waitForAll() override { return member_.waitForAll(); }
  void failed(int number) noexcept override { member_.failed(number); }
  Status submit(NativeStream stream, Work& work) override { return member_.submit(stream, work); }
  Status launch(NativeStream stream, LoadedKernels& kernels, const Launch& launch) override {
    return member_.launch(stream, kernels, launch);
  }

  std::uintptr_t nativeContext() const noexcept override { return member_.nativeContext(); }
  int primaryDevice() const noexcept override { return member_.primaryDevice(); }
  Result<NativeStream> streamOf(std::uintptr_t context, NativeStream stream) override {
    return member_.streamOf(context, stream);
  }
  int deviceOf(NativeStream stream) const noexcept override { return member_.deviceOf(stream); }
  bool knowsOthers() const noexcept override { return member_.knowsOthers(); }
  void otherEnds(std::uintptr_t context) noexcept override { member_.otherEnds(context); }
  void contextEnds() noexcept override { member_.contextEnds(); }
  void leaveContext() noexcept override {
    leaves_();
    member_.leaveContext();
  }

 private:
  NativeStreams& member_;
  std::function<Status(Ticket)> wait_;
  std::function<void()> leaves_;
};

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_GROUP_MEMBER_STREAMS_H_
