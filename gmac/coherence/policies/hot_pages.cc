// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/hot_pages.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "gmac/coherence/page_rounds.h"

namespace gmac {

bool HotPages::mayLeave(const Object& object, const std::byte* page) const {
  const auto begin = static_cast<std::size_t>(page - object.address());
  return object.pageRounds != nullptr && object.pageRounds->known(begin / pageBytes_) != nullptr &&
         !object.sharedBySmallObjects && object.pages.size() < kMostPages &&
         object.home == accel::Home::kDevice && object.homes.empty() && !object.striped &&
         !object.sent && !object.spread() && object.sameAddress &&
         object.users == Object::Users::kEverybody && !object.onlyRead && object.lent.empty() &&
         pageBytes_ % object.blockBytes == 0 && object.mirror->chunkBytes() % pageBytes_ == 0 &&
         begin + pageBytes_ <= object.bytes() &&
         object.ownAround(begin).end >= begin + pageBytes_ && object.pagesReady(begin, pageBytes_);
}

std::unique_ptr<Object> HotPages::make(Object& object, const std::byte* page) const {
  const auto begin = static_cast<std::size_t>(page - object.address());
  object.pages.reserve(object.pages.size() + 1);
  auto made = std::make_unique<Object>(object.mirror->part(begin, pageBytes_),
                                       object.deviceAt(begin), object.blockBytes, State::kInvalid);
  made->open = {};
  made->chunks.assign(made->chunks.size(), Object::Chunk::kReady);
  made->requestedBytes = pageBytes_;
  made->pagesOn = object.pagesOn;
  made->comers = object.pageRounds->known(begin / pageBytes_)->comers;
  made->whole = &object;
  made->bindings.reserve(object.bindings.size());
  for (const Binding& binding : object.bindings) {
    ledger_.bind(*made, binding.kernel, binding.access);
  }
  return made;
}

Object& HotPages::leaves(std::unique_ptr<Object> page) {
  Object& result = *page;
  Object& object = *page->whole;
  const auto after = std::find_if(
      object.pages.begin(), object.pages.end(),
      [&](const std::unique_ptr<Object>& other) { return other->address() > result.address(); });
  object.pages.insert(after, std::move(page));
  object.zeroSince.reset();
  // What the CPU comes for there is the page's now.
  const std::size_t begin = numberOf(result) * pageBytes_;
  result.zeroCopy = object.pageRounds->release(numberOf(result));
  object.copiedBack.dropAll();
  if (object.readBack.overlaps({begin, begin + pageBytes_})) {
    object.readBackHook.unlink();
    object.readBack.forget();
  }
  // (The program may have chosen the object's home meanwhile.)
  result.advised = object.advised;
  result.sent = object.sent;
  ledger_.allocated(result);
  // (Or bound a kernel.)
  for (const Binding& binding : object.bindings) {
    ledger_.bind(result, binding.kernel, binding.access);
  }
  blocks_.add(result);
  return result;
}

void HotPages::comesBack(const Object& page) const {
  // One that was used for so many launches was no mistake.
  constexpr std::uint64_t kLong = 4096;
  if (page.born != 0 && ledger_.newestWork() - page.born >= kLong) {
    return;
  }
  PageRounds& rounds = *page.whole->pageRounds;
  rounds.comesBack(numberOf(page));
  (void)rounds.release(numberOf(page));
}

void HotPages::joins(Object& page) {
  blocks_.remove(page);
  ledger_.forget(page);
  residency_.forget(page);
  comesBack(page);
  Object& object = page.allocation();
  std::erase_if(object.pages,
                [&](const std::unique_ptr<Object>& other) { return other.get() == &page; });
}

}  // namespace gmac
