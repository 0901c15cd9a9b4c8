// SPDX-License-Identifier: Apache-2.0
//
// What a process has measured of a device, in a file of the user's for the next one.
#ifndef GMAC_DATATYPE_MEASURED_VALUES_H_
#define GMAC_DATATYPE_MEASURED_VALUES_H_

#include <span>
#include <string>
#include <string_view>

namespace gmac::datatype {

struct MeasuredValue {
  std::string_view name;
  double* value;  // not negative
};

// Role: one file a device and kind of values, in the user's cache. Not thread-safe; for the stack.
// What cannot be read or written is done without.
class MeasuredFile {
 public:
  // `device` (its name) and `kind` name the file, `firstLine` says what is in it, with its version.
  MeasuredFile(std::string_view device, std::string_view kind, std::string_view firstLine);

  // Whether all of them were there; if not, any may have been set.
  bool read(std::span<const MeasuredValue> values) const;
  // Whole or not at all, whoever else writes it.
  void write(std::span<const MeasuredValue> values) const;

 private:
  std::string path_;  // "": there is no such place
  std::string firstLine_;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_MEASURED_VALUES_H_
