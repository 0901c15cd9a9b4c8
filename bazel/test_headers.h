// SPDX-License-Identifier: Apache-2.0
//
// Headers that most tests include. g++ parses it once for all of them (bazel/precompiled.bzl); each
// still includes what it uses, for clang-tidy and clangd know nothing of this.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>
