// SPDX-License-Identifier: Apache-2.0
#include "datatypes/engine.h"

namespace datatypes {
namespace {

adsmPackOptions_t optionsFor(const Manner& manner) {
  adsmPackOptions_t options = {};
  options.size = sizeof options;
  options.method = manner.method;
  options.blocks = manner.blocks;
  options.stream = manner.stream;
  return options;
}

bool supported(adsmError_t error, const char* what) {
  if (error == adsmErrorNotSupported) return false;
  require(error, what);
  return true;
}

}  // namespace

bool pack(void* to, const void* from, const Type& type, const Manner& manner,
          adsmPackReport_t* report) {
  adsmPackOptions_t options = optionsFor(manner);
  options.report = report;
  return supported(adsmPackWith(to, from, 1, type.get(), &options), "adsmPackWith");
}

bool unpack(void* to, const void* from, const Type& type, const Manner& manner,
            adsmPackReport_t* report) {
  adsmPackOptions_t options = optionsFor(manner);
  options.report = report;
  return supported(adsmUnpackWith(to, from, 1, type.get(), &options), "adsmUnpackWith");
}

adsmPackEvent_t startPack(void* to, const void* from, const Type& type, const Manner& manner) {
  adsmPackOptions_t options = optionsFor(manner);
  adsmPackEvent_t event = nullptr;
  options.event = &event;
  require(adsmPackWith(to, from, 1, type.get(), &options), "adsmPackWith");
  return event;
}

void finishPack(adsmPackEvent_t event) { require(adsmPackWait(event), "adsmPackWait"); }

}  // namespace datatypes
