// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/lent_bytes.h"

#include <memory>

#include "gmac/base/api_call.h"
#include "gmac/base/handles.h"
#include "gmac/base/status.h"
#include "gmac/datatype/engine/engine.h"
#include "gmac/datatype/types/registry.h"

using namespace gmac::datatype;

adsmError_t gmacPackLent(void* packed, const void* source, adsmType_t type, int64_t offset,
                         int64_t bytes, adsmPackEvent_t* event) {
  constexpr const char* kName = "gmacPackLent";
  return gmac::api::guarded(kName, [&]() -> gmac::Status {
    auto form = committed(type, kName, "type");
    GMAC_TRY(form.status());
    const auto engine = Engine::get();
    GMAC_TRY(engine.status());
    const auto prepared = (*engine)->prepared().get(*form, 1);
    GMAC_TRY(prepared.status());
    const Layout& layout = (*prepared)->layout();
    if (packed == nullptr || source == nullptr || offset < 0 || bytes <= 0 ||
        offset > layout.bytes() - bytes) {
      return gmac::fail(adsmErrorInvalidValue,
                        "{}: {} bytes from byte {} on, of {} at {}, cannot be packed to {}", kName,
                        bytes, offset, layout.bytes(), source, packed);
    }
    Operation operation;
    operation.prepared = prepared->get();
    operation.strided = static_cast<std::byte*>(const_cast<void*>(source));
    operation.packed = static_cast<std::byte*>(packed);
    operation.offset = offset;
    operation.bytes = bytes;
    operation.bounds = layout.boundsOf(offset, bytes);
    operation.method = adsmMethodKernel;
    operation.stream = (*engine)->device().aside();
    operation.wait = false;
    operation.lent = true;
    const auto cached = std::make_unique<CachedLaunch>();
    const auto ran = (*engine)->run(operation, *cached);
    GMAC_TRY(ran.status());
    *event = static_cast<adsmPackEvent_t>(
        gmac::HandleTable<gmac::accel::Ticket>::instance().add(ran->ticket));
    return {};
  });
}
