// SPDX-License-Identifier: Apache-2.0
//
// Files that are one array of values, and references: slow to compute, so computed once and kept
// beside the input.
#ifndef GMAC_PARBOIL_VALUES_H_
#define GMAC_PARBOIL_VALUES_H_

#include <vector>

#include "parboil/files.h"

namespace parboil {

// All values of a file.
template <typename T>
std::vector<T> readValues(const std::filesystem::path& path, const FileFormat& format, Size size) {
  InputFile file(path, format, size);
  std::vector<T> values(file.payloadBytes() / sizeof(T));
  file.read(values.data(), values.size() * sizeof(T));
  return values;
}

// Writes a file of values.
template <typename T>
void writeValues(const std::filesystem::path& path, const FileFormat& format, Size size,
                 const std::vector<T>& values) {
  OutputFile file(path, format, size);
  file.write(values.data(), values.size() * sizeof(T));
  file.commit();
}

// The benchmark's reference, from its ".ref" file if that is at least as new as its ".in" file,
// else from `compute()` (a std::vector<T>) and kept.
template <typename T, typename Compute>
std::vector<T> keptReference(const Context& context, const char* benchmark,
                             const FileFormat& format, const Compute& compute) {
  const auto path = dataPath(context, benchmark, "ref");
  if (isCurrent(path, format, context.size, dataPath(context, benchmark, "in"))) {
    return readValues<T>(path, format, context.size);
  }
  std::vector<T> values = compute();
  writeValues(path, format, context.size, values);
  return values;
}

}  // namespace parboil

#endif  // GMAC_PARBOIL_VALUES_H_
