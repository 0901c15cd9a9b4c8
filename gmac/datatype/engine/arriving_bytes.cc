// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/arriving_bytes.h"

#include "gmac/base/api_call.h"
#include "gmac/base/status.h"
#include "gmac/datatype/engine/arrivals.h"
#include "gmac/datatype/engine/engine.h"
#include "gmac/datatype/types/registry.h"

using namespace gmac::datatype;

namespace {

// (An engine has one, and is never destroyed.)
gmacArrival* handleOf(Arrivals& arrivals) { return reinterpret_cast<gmacArrival*>(&arrivals); }
Arrivals& of(gmacArrival* arrival) { return *reinterpret_cast<Arrivals*>(arrival); }

}  // namespace

adsmError_t gmacUnpackArriving(void* target, adsmType_t type, int64_t bytes, const void* ring,
                               int64_t fragmentBytes, int slots, gmacArrival** arrival) {
  constexpr const char* kName = "gmacUnpackArriving";
  return gmac::api::guarded(kName, [&]() -> gmac::Status {
    auto form = committed(type, kName, "type");
    GMAC_TRY(form.status());
    const auto engine = Engine::get();
    GMAC_TRY(engine.status());
    const auto prepared = (*engine)->prepared().get(*form, 1);
    GMAC_TRY(prepared.status());
    const Layout& layout = (*prepared)->layout();
    if (target == nullptr || ring == nullptr || fragmentBytes <= 0 || slots <= 0 || bytes <= 0 ||
        bytes > layout.bytes()) {
      return gmac::fail(adsmErrorInvalidValue,
                        "{}: {} bytes of {} cannot arrive at {} in {} slots of {} bytes at {}",
                        kName, bytes, layout.bytes(), target, slots, fragmentBytes, ring);
    }
    Operation operation;
    operation.direction = Direction::kUnpack;
    operation.prepared = prepared->get();
    operation.strided = static_cast<std::byte*>(target);
    operation.packed = static_cast<std::byte*>(const_cast<void*>(ring));
    operation.bytes = bytes;
    operation.bounds = layout.boundsOf(0, bytes);
    operation.wait = false;
    GMAC_TRY(
        (*engine)->arrivals().begin(operation, fragmentBytes, static_cast<std::uint32_t>(slots)));
    *arrival = handleOf((*engine)->arrivals());
    return {};
  });
}

int64_t gmacArrived(gmacArrival* arrival, int64_t fragments) {
  return of(arrival).arrived(fragments);
}

void gmacNoMoreArrives(gmacArrival* arrival) { of(arrival).noMore(); }

int gmacArrivalOver(gmacArrival* arrival) {
  return gmac::uncancelled([&] { return of(arrival).over() ? 1 : 0; });
}

adsmError_t gmacEndArrival(gmacArrival* arrival, int64_t* fragments) {
  return gmac::api::guarded("gmacEndArrival", [&]() -> gmac::Status {
    const auto unpacked = of(arrival).end();
    GMAC_TRY(unpacked.status());
    *fragments = *unpacked;
    return {};
  });
}
