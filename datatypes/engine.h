// SPDX-License-Identifier: Apache-2.0
//
// The engine that is measured, as this program calls it.
#ifndef GMAC_DATATYPES_ENGINE_H_
#define GMAC_DATATYPES_ENGINE_H_

#include <string>
#include <vector>

#include "datatypes/type.h"

namespace datatypes {

// How an operation is done; what is not said is the engine's choice.
struct Manner {
  adsmMethod_t method = adsmMethodAny;
  int blocks = 0;
  void* stream = nullptr;
};

// Packs or unpacks one element of a committed type. False where the engine says that the manner is
// not supported there; every other error is a Failure.
bool pack(void* to, const void* from, const Type& type, const Manner& manner,
          adsmPackReport_t* report = nullptr);
bool unpack(void* to, const void* from, const Type& type, const Manner& manner,
            adsmPackReport_t* report = nullptr);

// A pack that is over when the result has been waited for.
adsmPackEvent_t startPack(void* to, const void* from, const Type& type, const Manner& manner);
void finishPack(adsmPackEvent_t event);

}  // namespace datatypes

#endif  // GMAC_DATATYPES_ENGINE_H_
