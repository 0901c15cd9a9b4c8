// SPDX-License-Identifier: Apache-2.0
#include "gmac/device_code/image.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <lz4.h>
#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gmac::device_code {
namespace {

constexpr std::uint16_t kPtx = 1;
constexpr std::uint16_t kElf = 2;
constexpr std::uint64_t kPlain = 0x11;  // 64 bits, Linux
constexpr std::uint64_t kDebug = 0x2;
constexpr std::uint64_t kLz4 = 0x2000;
constexpr std::uint64_t kZstd = 0x8000;
constexpr std::uint64_t kDeviceOnly = 0x100000;
constexpr std::uint64_t kFamilyOnly = 0x200000;

// Offsets of an entry header's fields.
constexpr std::size_t kVersionAt = 2;
constexpr std::size_t kHeaderBytesAt = 4;
constexpr std::size_t kPayloadBytesAt = 8;
constexpr std::size_t kCompressedBytesAt = 16;
constexpr std::size_t kOptionsAt = 20;
constexpr std::size_t kFlagsAt = 40;
constexpr std::size_t kDecompressedBytesAt = 56;

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
void put(std::string& bytes, std::size_t at, T value) {
  ASSERT_LE(at + sizeof(value), bytes.size());
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}

// Long enough to compress.
std::string ptxText(std::string_view target) {
  std::string text = "\n\n// comment\n.version 9.0\n.target " + std::string(target) + "\n";
  for (int i = 0; i < 20; ++i) text += "add.u64 %rd1, %rd2, " + std::to_string(i) + ";\n";
  return text;
}

// A cubin of CUDA 13 that names the architecture of the PTX that it was compiled from.
std::string cubin(std::uint32_t source, std::uint16_t type = ET_EXEC) {
  std::string note;
  append(note, Elf64_Nhdr{12, 8, 1000});
  note.append("NVIDIA Corp", 12);
  append(note, std::uint16_t{2});
  append(note, static_cast<std::uint16_t>(source));
  append(note, std::uint32_t{130});
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_ident[EI_OSABI] = 0x41;
  header.e_ident[EI_ABIVERSION] = 8;
  header.e_type = type;
  header.e_machine = EM_CUDA;
  header.e_shoff = sizeof(header);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 2;
  Elf64_Shdr section{};
  section.sh_type = SHT_NOTE;
  section.sh_offset = sizeof(header) + 2 * sizeof(section);
  section.sh_size = note.size();
  std::string file;
  append(file, header);
  append(file, Elf64_Shdr{});
  append(file, section);
  return file + note;
}

// A cubin of CUDA 12, whose flags name both architectures.
std::string oldCubin(std::uint32_t source, std::uint32_t architecture) {
  std::string file = cubin(0);
  file[EI_OSABI] = 0x33;
  file[EI_ABIVERSION] = 7;
  put(file, offsetof(Elf64_Ehdr, e_flags), source << 16 | 0x500 | architecture);
  return file;
}

std::string entry(std::uint16_t kind, std::uint32_t architecture, std::uint64_t flags,
                  const std::string& content, std::string_view options = {}) {
  std::string payload = content;
  if ((flags & kLz4) != 0) {
    payload.resize(LZ4_compressBound(static_cast<int>(content.size())));
    payload.resize(LZ4_compress_default(content.data(), payload.data(),
                                        static_cast<int>(content.size()),
                                        static_cast<int>(payload.size())));
  } else if ((flags & kZstd) != 0) {
    payload.resize(ZSTD_compressBound(content.size()));
    payload.resize(
        ZSTD_compress(payload.data(), payload.size(), content.data(), content.size(), 3));
  }
  const bool compressed = (flags & (kLz4 | kZstd)) != 0;
  const std::size_t used = payload.size();
  payload.resize((used + 7) / 8 * 8);
  const std::size_t optionBytes = options.empty() ? 0 : 8 + (options.size() + 7) / 8 * 8;
  std::string bytes;
  append(bytes, kind);
  append(bytes, std::uint16_t{0x101});
  append(bytes, static_cast<std::uint32_t>(64 + optionBytes));
  append(bytes, std::uint64_t{payload.size()});
  append(bytes, static_cast<std::uint32_t>(compressed ? used : 0));
  append(bytes, std::uint32_t{options.empty() ? 0U : 64U});
  append(bytes, std::uint32_t{0x90000});
  append(bytes, architecture);
  append(bytes, std::uint64_t{0});  // no name
  append(bytes, flags);
  append(bytes, std::uint64_t{0});
  append(bytes, std::uint64_t{compressed ? content.size() : 0});
  if (!options.empty()) {
    append(bytes, std::uint32_t{72});
    append(bytes, static_cast<std::uint32_t>(options.size()));
    bytes.append(options);
    bytes.resize(64 + optionBytes);
  }
  return bytes + payload;
}

std::string ptx(std::uint32_t architecture, std::uint64_t variant = 0, std::string_view more = {}) {
  std::string target = "sm_" + std::to_string(architecture);
  if (variant == kDeviceOnly) target += 'a';
  if (variant == kFamilyOnly) target += 'f';
  return entry(kPtx, architecture, kPlain | kZstd | variant, ptxText(target).append(more));
}

std::string elf(std::uint32_t architecture, std::uint64_t variant = 0, std::uint32_t source = 0) {
  return entry(kElf, architecture, kPlain | variant, cubin(source == 0 ? architecture : source));
}

std::string fatBinary(const std::vector<std::string>& entries) {
  std::string all;
  for (const std::string& one : entries) all += one;
  std::string bytes;
  append(bytes, std::uint32_t{0xBA55ED50});
  append(bytes, std::uint16_t{1});
  append(bytes, std::uint16_t{16});
  append(bytes, std::uint64_t{all.size()});
  return bytes + all;
}

// From a heap buffer of exactly its size, so that AddressSanitizer sees every read beyond.
std::optional<std::string> find(std::string_view bytes, int device = 90) {
  const auto copy = std::make_unique<std::byte[]>(bytes.size());
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  return ptxOfFatBinary({copy.get(), bytes.size()}, device);
}

// The PTX that is found in a fat binary of `entries`, by its target.
std::string target(const std::vector<std::string>& entries, int device = 90) {
  const auto text = find(fatBinary(entries), device);
  if (!text) return "none";
  const std::size_t begin = text->find(".target sm_") + 11;
  return text->substr(begin, text->find('\n', begin) - begin);
}

struct Wrapper {
  std::uint32_t magic;
  std::uint32_t version;
  const void* fatBinary;
  const void* others;
};

TEST(Image, OfPtxTextIsThatText) {
  const std::string text = " \n// a\n/* b\n.entry */\t.version 8.0\n.target sm_90\n";
  const std::vector<char> exact(text.c_str(), text.c_str() + text.size() + 1);
  EXPECT_EQ(ptxOf(exact.data(), 90), text);
  EXPECT_EQ(ptxOf(exact.data(), 80), text) << "the driver compiles it for any device";
  EXPECT_TRUE(mayHavePtx(exact.data()));
}

TEST(Image, OfAnotherFormHasNoPtx) {
  for (const std::string_view text :
       {"", " ", "\n\n", "//", "// .version", "/*", "/* .version 8.0", "/* *", ".versio", ".target",
        "x .version", "P", "P\xED", "\xB1\x43", "/"}) {
    // Nothing behind the terminator is read.
    std::vector<char> exact(text.begin(), text.end());
    exact.push_back('\0');
    EXPECT_EQ(ptxOf(exact.data(), 90), std::nullopt) << text;
    EXPECT_FALSE(mayHavePtx(exact.data())) << text;
  }
  EXPECT_EQ(ptxOf(cubin(90).data(), 90), std::nullopt);
  EXPECT_EQ(ptxOf(nullptr, 90), std::nullopt);
  EXPECT_FALSE(mayHavePtx(nullptr));
}

TEST(Image, MayBeAFatBinaryOrItsWrapper) {
  const std::string bytes = fatBinary({elf(90), ptx(90)});
  EXPECT_EQ(ptxOf(bytes.data(), 90), ptxText("sm_90"));
  EXPECT_TRUE(mayHavePtx(bytes.data()));
  Wrapper wrapper{0x466243B1, 1, bytes.data(), nullptr};
  EXPECT_EQ(ptxOf(&wrapper, 90), ptxText("sm_90"));
  EXPECT_TRUE(mayHavePtx(&wrapper));

  wrapper.version = 2;
  EXPECT_EQ(ptxOf(&wrapper, 90), std::nullopt) << "is linked with others";
  EXPECT_FALSE(mayHavePtx(&wrapper));
  wrapper.version = 1;
  wrapper.others = bytes.data();
  EXPECT_EQ(ptxOf(&wrapper, 90), std::nullopt);
  wrapper = {0x466243B1, 1, nullptr, nullptr};
  EXPECT_EQ(ptxOf(&wrapper, 90), std::nullopt);
  wrapper.fatBinary = &wrapper;
  EXPECT_EQ(ptxOf(&wrapper, 90), std::nullopt);
}

TEST(Image, WithoutPtxEntriesMayHaveNone) {
  const std::string code = fatBinary({elf(90)});
  EXPECT_FALSE(mayHavePtx(code.data()));
  EXPECT_FALSE(mayHavePtx(fatBinary({}).data()));
  EXPECT_EQ(ptxOf(code.data(), 90), std::nullopt);
}

TEST(Image, IsReadInEveryCompression) {
  const std::string text = ptxText("sm_90");
  for (const std::uint64_t ofText : {std::uint64_t{0}, kLz4, kZstd}) {
    for (const std::uint64_t ofCode : {std::uint64_t{0}, kLz4, kZstd}) {
      EXPECT_EQ(find(fatBinary({entry(kElf, 90, kPlain | ofCode, cubin(90)),
                                entry(kPtx, 90, kPlain | ofText, text)})),
                text);
      EXPECT_EQ(find(fatBinary({entry(kElf, 90, kPlain | ofCode, cubin(80)),
                                entry(kPtx, 90, kPlain | ofText, text)})),
                std::nullopt);
    }
    EXPECT_EQ(find(fatBinary({entry(kPtx, 90, kPlain | ofText, text + '\0')})), text)
        << "with a terminator";
    std::string two = text + '\0';
    two += text;
    EXPECT_EQ(find(fatBinary({entry(kPtx, 90, kPlain | ofText, two)})), std::nullopt);
    EXPECT_EQ(find(fatBinary({entry(kPtx, 90, kPlain | ofText, "no PTX")})), std::nullopt);
  }
}

TEST(Image, WithoutMachineCodeHasThePtxOfTheHighestArchitectureThatFits) {
  EXPECT_EQ(target({ptx(75), ptx(90), ptx(80)}), "90");
  EXPECT_EQ(target({ptx(75), ptx(90), ptx(80)}, 89), "80");
  EXPECT_EQ(target({ptx(75), ptx(90), ptx(80)}, 120), "90");
  EXPECT_EQ(target({ptx(75), ptx(90), ptx(80)}, 70), "none");
  EXPECT_EQ(target({ptx(75), ptx(75, 0, "ret;\n")}), "none") << "two of one architecture";
  EXPECT_EQ(target({ptx(75), ptx(75, 0, "ret;\n"), ptx(80)}), "80");
  EXPECT_EQ(target({}), "none");
  EXPECT_EQ(target({ptx(75)}, 0), "none");
  EXPECT_EQ(target({ptx(75)}, -1), "none");
}

TEST(Image, WithMachineCodeHasThePtxThatItWasCompiledFrom) {
  EXPECT_EQ(target({elf(90), ptx(90)}), "90");
  EXPECT_EQ(target({elf(80), elf(90), ptx(90), elf(120)}), "90");
  EXPECT_EQ(target({elf(90), ptx(80)}), "none");
  EXPECT_EQ(target({elf(90, 0, 80), ptx(80)}), "80");
  EXPECT_EQ(target({elf(90, 0, 80), ptx(90)}), "none") << "compiled from a text that is not there";
  EXPECT_EQ(target({elf(90, 0, 80), ptx(80), ptx(90)}), "none") << "the driver may compile sm_90";
  EXPECT_EQ(target({elf(90), elf(90), ptx(90)}), "none") << "one of them is another text's";
  EXPECT_EQ(target({elf(100), ptx(90)}), "90") << "for another device";
  EXPECT_EQ(target({entry(kElf, 90, kPlain, oldCubin(90, 90)), ptx(90)}), "90");
  EXPECT_EQ(target({entry(kElf, 90, kPlain, oldCubin(80, 90)), ptx(90)}), "none");
}

TEST(Image, OfALowerMinorVersionCountsIfWhateverTheDriverPrefersIsFromOneText) {
  EXPECT_EQ(target({elf(80), ptx(80)}, 86), "80");
  EXPECT_EQ(target({elf(80), elf(86, 0, 80), ptx(80)}, 89), "80");
  EXPECT_EQ(target({elf(80), elf(86), ptx(86)}, 89), "none");
  EXPECT_EQ(target({elf(86), ptx(89)}, 89), "none");
  EXPECT_EQ(target({elf(80), elf(89), ptx(89)}, 89), "89") << "the exact one is preferred";
  EXPECT_EQ(target({elf(80), ptx(90)}, 90), "90") << "another major version";
  EXPECT_EQ(target({elf(87), ptx(80)}, 86), "80") << "a higher minor version";
}

TEST(Image, OfAVariantIsNotThatOfTheArchitecture) {
  EXPECT_EQ(target({elf(90, kDeviceOnly), ptx(90, kDeviceOnly)}), "90a");
  EXPECT_EQ(target({elf(90, kDeviceOnly), ptx(90)}), "none");
  EXPECT_EQ(target({elf(90), ptx(90, kDeviceOnly)}), "none");
  EXPECT_EQ(target({ptx(90, kDeviceOnly)}, 100), "none");
  EXPECT_EQ(target({ptx(90, kDeviceOnly), ptx(80)}, 100), "80");
  EXPECT_EQ(target({ptx(100, kDeviceOnly), ptx(90)}, 103), "90");
  EXPECT_EQ(target({elf(100, kFamilyOnly), ptx(100, kFamilyOnly)}, 100), "100f");
  EXPECT_EQ(target({elf(100, kFamilyOnly), ptx(100, kDeviceOnly)}, 100), "none");
  EXPECT_EQ(target({ptx(100, kFamilyOnly), ptx(90)}, 103), "none") << "may be of the family";
  EXPECT_EQ(target({ptx(100, kFamilyOnly), ptx(90)}, 120), "90");
}

// nvcc -arch=sm_90a.
TEST(Image, InSeveralVariantsHasThePtxThatTheyShare) {
  const std::string more = "wgmma.fence.sync.aligned;\n";
  EXPECT_EQ(target({ptx(90), elf(90, kDeviceOnly), ptx(90, kDeviceOnly)}), "90");
  EXPECT_EQ(target({ptx(90), elf(90, kDeviceOnly), ptx(90, kDeviceOnly, more)}), "none");
  EXPECT_EQ(target({ptx(90), ptx(90, kDeviceOnly)}), "90");
  EXPECT_EQ(target({ptx(90), ptx(90, kDeviceOnly, more)}), "none");
  EXPECT_EQ(target({ptx(90), ptx(90, kDeviceOnly, more)}, 100), "90");
  EXPECT_EQ(target({elf(90), ptx(90), elf(90, kDeviceOnly), ptx(90, kDeviceOnly)}), "90");
  EXPECT_EQ(target({elf(90), elf(90, kDeviceOnly, 80), ptx(90), ptx(90, kDeviceOnly)}), "none");
  EXPECT_EQ(target({ptx(90), ptx(90), ptx(90), ptx(90)}), "none") << "more than there are variants";
  EXPECT_EQ(target({ptx(90), entry(kPtx, 90, kPlain, ptxText("sm_90"), "-c")}), "none");
  EXPECT_EQ(target({ptx(90), entry(kPtx, 90, kPlain, "?")}), "none");
}

TEST(Image, ForTheDebuggerIsNotThatForSpeed) {
  EXPECT_EQ(target({elf(90, kDebug), ptx(90, kDebug)}), "90");
  EXPECT_EQ(target({elf(90), ptx(90, kDebug)}), "none");
  EXPECT_EQ(target({elf(90, kDebug), ptx(90)}), "none");
}

TEST(Image, ThatIsToBeLinkedIsRefused) {
  const auto withOptions = [](std::string_view options) {
    return entry(kPtx, 90, kPlain, ptxText("sm_90"), options);
  };
  EXPECT_EQ(target({withOptions(" --generate-line-info ")}), "90");
  EXPECT_EQ(target({withOptions("-g --compile-only  ")}), "none");
  EXPECT_EQ(target({withOptions("-c")}), "none");
  EXPECT_EQ(target({withOptions("-cx --compile-only2")}), "90");
  EXPECT_EQ(target({entry(kElf, 90, kPlain, cubin(90, ET_REL)), ptx(90)}), "none");
  EXPECT_EQ(target({ptx(90), entry(8, 90, kPlain | 0x10000, "LTO IR")}), "none");

  std::string outside = withOptions("-g");
  put(outside, 64 + 4, std::uint32_t{9});  // the text's length
  EXPECT_EQ(target({outside}), "none");
  put(outside, 64 + 4, std::uint32_t{0xFFFFFFFF});
  EXPECT_EQ(target({outside}), "none");
  put(outside, kOptionsAt, std::uint32_t{80});
  EXPECT_EQ(target({outside}), "none");
}

TEST(Image, WithAnythingUnknownIsRefused) {
  EXPECT_EQ(target({ptx(90), entry(3, 80, kPlain, "?")}), "none");
  EXPECT_EQ(target({entry(kPtx, 90, kPlain | 0x40, ptxText("sm_90"))}), "none");
  EXPECT_EQ(target({entry(kPtx, 90, kPlain | kLz4 | kZstd, ptxText("sm_90"))}), "none");
  std::string version = ptx(90);
  put(version, kVersionAt, std::uint16_t{0x102});
  EXPECT_EQ(target({version}), "none");

  for (const std::size_t at : {0, 4, 6}) {
    std::string header = fatBinary({ptx(90)});
    header[at] ^= 2;
    EXPECT_EQ(find(header), std::nullopt) << at;
    EXPECT_EQ(ptxOf(header.data(), 90), std::nullopt) << at;
  }

  const auto withDamage = [](std::size_t at) {
    std::string file = cubin(90);
    file[at] ^= 0x10;
    return target({entry(kElf, 90, kPlain, file), ptx(90)});
  };
  const std::size_t noteAt = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Shdr);
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{EI_CLASS}, std::size_t{EI_DATA}, std::size_t{EI_OSABI},
        std::size_t{EI_ABIVERSION}, offsetof(Elf64_Ehdr, e_type), offsetof(Elf64_Ehdr, e_machine),
        offsetof(Elf64_Ehdr, e_shoff) + 7, offsetof(Elf64_Ehdr, e_shentsize),
        offsetof(Elf64_Ehdr, e_shnum), sizeof(Elf64_Ehdr) + 64 + offsetof(Elf64_Shdr, sh_type),
        sizeof(Elf64_Ehdr) + 64 + offsetof(Elf64_Shdr, sh_offset) + 7,
        sizeof(Elf64_Ehdr) + 64 + offsetof(Elf64_Shdr, sh_size) + 7, noteAt, noteAt + 8,
        noteAt + 12, noteAt + 24, noteAt + 26}) {
    EXPECT_EQ(withDamage(at), "none") << at;
  }
  std::string shortNote = cubin(90);
  put(shortNote, noteAt + 4, std::uint32_t{3});
  EXPECT_EQ(target({entry(kElf, 90, kPlain, shortNote), ptx(90)}), "none");
  EXPECT_EQ(target({entry(kElf, 90, kPlain,
                          "\x7f"
                          "ELF"),
                    ptx(90)}),
            "none");
}

TEST(Image, WhoseSizesDisagreeIsRefused) {
  const std::string whole = fatBinary({elf(90), ptx(90)});
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_EQ(find(std::string_view(whole).substr(0, bytes)), std::nullopt) << bytes;
  }
  EXPECT_EQ(target({ptx(90), std::string(8, '\0')}), "none") << "too short for an entry";
  EXPECT_EQ(target({ptx(90), std::string(64, '\0')}), "none");

  const auto with = [](std::size_t at, auto value) {
    std::string one = ptx(90);
    put(one, at, value);
    return target({one});
  };
  for (const std::uint32_t bytes : {0U, 63U, 4096U, 0xFFFFFFFFU}) {
    EXPECT_EQ(with(kHeaderBytesAt, bytes), "none") << bytes;
  }
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{4096}, ~std::uint64_t{0}, ~std::uint64_t{0} - 63}) {
    EXPECT_EQ(with(kPayloadBytesAt, bytes), "none") << bytes;
    EXPECT_EQ(with(kDecompressedBytesAt, bytes), "none") << bytes;
  }
  for (const std::uint32_t bytes : {0U, 8U, 4096U, 0xFFFFFFFFU}) {
    EXPECT_EQ(with(kCompressedBytesAt, bytes), "none") << bytes;
  }
  EXPECT_EQ(with(kDecompressedBytesAt, std::uint64_t{ptxText("sm_90").size() - 1}), "none");
  EXPECT_EQ(with(kDecompressedBytesAt, std::uint64_t{ptxText("sm_90").size() + 1}), "none");
  for (const int difference : {-1, 1}) {
    std::string one = entry(kPtx, 90, kPlain | kLz4, ptxText("sm_90"));
    put(one, kDecompressedBytesAt, std::uint64_t{ptxText("sm_90").size() + difference});
    EXPECT_EQ(target({one}), "none") << difference;
  }
  std::string raw = entry(kPtx, 90, kPlain, ptxText("sm_90"));
  put(raw, kCompressedBytesAt, std::uint32_t{8});
  EXPECT_EQ(target({raw}), "none");
  std::string shortHeader = elf(80);
  put(shortHeader, kHeaderBytesAt, std::uint32_t{56});
  put(shortHeader, kPayloadBytesAt, std::uint64_t{shortHeader.size() - 56});
  EXPECT_EQ(target({shortHeader, ptx(90)}), "none");
  EXPECT_EQ(with(kFlagsAt, kPlain), "none") << "compressed and not";
  EXPECT_EQ(with(kFlagsAt, kPlain | kLz4), "none") << "another compression";

  // Longer than any fat binary; there are no such bytes to read.
  std::string large = whole;
  put(large, 8, (std::uint64_t{1} << 30) + 1);
  EXPECT_EQ(ptxOf(large.data(), 90), std::nullopt);
  EXPECT_FALSE(mayHavePtx(large.data()));
}

TEST(Image, OfTooManyEntriesIsRefused) {
  const std::string one = entry(kElf, 80, kPlain, "");
  std::vector<std::string> entries(65535, one);
  entries.push_back(ptx(90));
  EXPECT_EQ(target(entries), "90");
  entries.push_back(one);
  EXPECT_EQ(target(entries), "none");
}

TEST(Image, WithPtxThatIsTooLargeIsRefused) {
  std::string text = ptxText("sm_90");
  text.resize(std::size_t{8} << 20, ' ');
  EXPECT_TRUE(find(fatBinary({entry(kPtx, 90, kPlain | kZstd, text)})) == text);
  text.push_back(' ');
  EXPECT_EQ(find(fatBinary({entry(kPtx, 90, kPlain | kZstd, text)})), std::nullopt);
  EXPECT_EQ(find(fatBinary({entry(kPtx, 90, kPlain, text)})), std::nullopt);
  EXPECT_EQ(ptxOf(text.c_str(), 90), std::nullopt);
}

// For the sanitizers: any bytes may be answered in any way, but only from within.
TEST(Image, IsNeverReadBeyondItsEnd) {
  std::vector<std::string> images;
  for (const std::uint64_t compression : {std::uint64_t{0}, kLz4, kZstd}) {
    images.push_back(fatBinary(
        {entry(kElf, 90, kPlain | compression, cubin(90)),
         entry(kPtx, 90, kPlain | compression, ptxText("sm_90"), " --generate-line-info "),
         elf(80)}));
    ASSERT_EQ(find(images.back()), ptxText("sm_90"));
  }
  constexpr unsigned kSeed = 17;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 30000; ++i) {
    std::string bytes = images[random() % images.size()];
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes) {
      constexpr unsigned char kValues[] = {0, 1, 0x10, 0x40, 0x7F, 0x80, 0xFF};
      char& byte = bytes[random() % (random() % 2 == 0 ? bytes.size() : std::size_t{120})];
      byte = random() % 2 == 0 ? static_cast<char>(kValues[random() % std::size(kValues)])
                               : static_cast<char>(byte ^ (1 << random() % 8));
    }
    find(bytes);
  }
}

}  // namespace
}  // namespace gmac::device_code
