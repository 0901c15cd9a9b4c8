// SPDX-License-Identifier: Apache-2.0
//
// Headers of other projects that those of the core include. g++ parses them once for all sources of
// the core (bazel/precompiled.bzl); each file still includes what it uses, for clang-tidy and
// clangd know nothing of this. Without fmt: g++ would compile parts of it again for every source.
#include <algorithm>
#include <array>
#include <atomic>
#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
