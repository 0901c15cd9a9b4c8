// SPDX-License-Identifier: Apache-2.0
//
// The layout of fat binaries is not documented. What is here was found in the output of nvcc 13.0;
// what differs from it is refused.
#include "gmac/device_code/image.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "gmac/device_code/decompression.h"

namespace gmac::device_code {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t kMaxFatBinary = std::size_t{1} << 30;
constexpr std::size_t kMaxContent = std::size_t{64} << 20;  // of one entry, decompressed
constexpr std::size_t kMaxPtx = std::size_t{8} << 20;  // reading more takes too long for its worth
constexpr std::size_t kMaxEntries = std::size_t{1} << 16;

// What nvcc's host code registers.
struct Wrapper {
  std::uint32_t magic;
  std::uint32_t version;
  const void* fatBinary;
  const void* others;  // version 2: fat binaries to link with
};
constexpr std::uint32_t kWrapperMagic = 0x466243B1;

struct Header {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t headerBytes;
  std::uint64_t bytes;  // of the entries
};
static_assert(sizeof(Header) == 16);
constexpr std::uint32_t kMagic = 0xBA55ED50;

struct EntryHeader {
  std::uint16_t kind;
  std::uint16_t version;
  std::uint32_t headerBytes;   // with the name and the options
  std::uint64_t payloadBytes;  // with padding
  std::uint32_t compressedBytes;
  std::uint32_t optionsAt;  // of an OptionsHeader, from the entry's begin; 0: none
  std::uint16_t minorVersion;
  std::uint16_t majorVersion;
  std::uint32_t architecture;
  std::uint32_t nameAt;
  std::uint32_t nameBytes;
  std::uint64_t flags;
  std::uint64_t hash;  // of LTO IR
  std::uint64_t decompressedBytes;
};
static_assert(sizeof(EntryHeader) == 64);
constexpr std::uint16_t kEntryVersion = 0x101;

struct OptionsHeader {
  std::uint32_t textAt;  // from the entry's begin
  std::uint32_t textBytes;
};

enum Kind : std::uint16_t { kPtx = 1, kElf = 2 };

enum Flag : std::uint64_t {
  k64Bit = 0x1,
  kDebug = 0x2,
  kLinux = 0x10,
  kLz4 = 0x2000,
  kZstd = 0x8000,
  kThisDeviceOnly = 0x100000,    // as in sm_90a
  kThisFamilyOnly = 0x200000,    // as in sm_100f
  kHasRequirements = 0x1000000,  // machine code of sm_100 and later: with a list of features
};
constexpr std::uint64_t kKnownFlags =
    k64Bit | kDebug | kLinux | kLz4 | kZstd | kThisDeviceOnly | kThisFamilyOnly | kHasRequirements;

struct Entry {
  EntryHeader header;
  Bytes bytes;  // the header's and the payload's

  Bytes payload() const { return bytes.subspan(header.headerBytes); }
  std::uint32_t architecture() const { return header.architecture; }
  std::uint64_t variant() const { return header.flags & (kThisDeviceOnly | kThisFamilyOnly); }
};

// Unaligned, and only if all of it is there.
template <typename T>
std::optional<T> read(Bytes bytes, std::uint64_t at) {
  if (at > bytes.size() || bytes.size() - at < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// nullopt if `at` or `count` lies outside.
std::optional<Bytes> part(Bytes bytes, std::uint64_t at, std::uint64_t count) {
  if (at > bytes.size() || bytes.size() - at < count) return std::nullopt;
  return bytes.subspan(at, count);
}

// Byte by byte: another form of image may be shorter than the magic number.
bool beginsWith(const void* image, std::uint32_t magic) {
  const auto* bytes = static_cast<const unsigned char*>(image);
  for (int i = 0; i < 4; ++i) {
    if (bytes[i] != (magic >> (8 * i) & 0xFF)) return false;
  }
  return true;
}

// Whether the first directive is `.version`. Does not read past a terminator.
bool beginsAsPtx(const char* text, std::size_t bytes) {
  std::size_t at = 0;
  const auto nextIs = [&](std::string_view word) {
    for (std::size_t i = 0; i < word.size(); ++i) {
      if (at + i >= bytes || text[at + i] != word[i]) return false;
    }
    return true;
  };
  const auto skipUntil = [&](std::string_view end) {
    while (at < bytes && text[at] != '\0' && !nextIs(end)) ++at;
    if (!nextIs(end)) return false;
    at += end.size();
    return true;
  };
  while (at < bytes) {
    if (std::string_view(" \t\r\n\v\f").find(text[at]) != std::string_view::npos) {
      ++at;
    } else if (nextIs("//")) {
      if (!skipUntil("\n")) return false;
    } else if (nextIs("/*")) {
      at += 2;
      if (!skipUntil("*/")) return false;
    } else {
      return nextIs(".version");
    }
  }
  return false;
}

// nullopt unless all of them are understood, so that none the driver might use is missed.
std::optional<std::vector<Entry>> entriesOf(Bytes bytes) {
  const auto header = read<Header>(bytes, 0);
  if (!header || header->magic != kMagic || header->version != 1 ||
      header->headerBytes != sizeof(Header)) {
    return std::nullopt;
  }
  const auto entryBytes = part(bytes, sizeof(Header), header->bytes);
  if (!entryBytes) return std::nullopt;
  std::vector<Entry> entries;
  for (Bytes rest = *entryBytes; !rest.empty();) {
    const auto entry = read<EntryHeader>(rest, 0);
    if (!entry || entry->version != kEntryVersion || entries.size() == kMaxEntries ||
        (entry->kind != kPtx && entry->kind != kElf) || (entry->flags & ~kKnownFlags) != 0 ||
        entry->headerBytes < sizeof(EntryHeader) ||
        !part(rest, entry->headerBytes, entry->payloadBytes)) {
      return std::nullopt;
    }
    const std::size_t whole = entry->headerBytes + entry->payloadBytes;
    entries.push_back({*entry, rest.first(whole)});
    rest = rest.subspan(whole);
  }
  return entries;
}

// The payload, decompressed into `buffer` if necessary. May end with padding.
std::optional<Bytes> contentOf(const Entry& entry, std::string& buffer) {
  const EntryHeader& header = entry.header;
  const std::uint64_t compression = header.flags & (kLz4 | kZstd);
  if (compression == 0) {
    if (header.compressedBytes != 0) return std::nullopt;
    return entry.payload();
  }
  const auto compressed = part(entry.payload(), 0, header.compressedBytes);
  if (!compressed || header.decompressedBytes > kMaxContent) return std::nullopt;
  buffer.resize(header.decompressedBytes);
  if ((compression != kLz4 && compression != kZstd) ||
      !decompress(compression == kLz4 ? Compression::kLz4 : Compression::kZstd, *compressed,
                  buffer)) {
    return std::nullopt;
  }
  return std::as_bytes(std::span(buffer));
}

// For which architecture the PTX was that machine code is compiled from: sm_90 code can be made
// from compute_80's PTX, which is another text than compute_90's. nullopt if the code has yet to be
// linked.
std::optional<std::uint32_t> sourceArchitecture(const Entry& entry) {
  std::string buffer;
  const auto elf = contentOf(entry, buffer);
  if (!elf) return std::nullopt;
  const auto header = read<Elf64_Ehdr>(*elf, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
      header->e_machine != EM_CUDA || header->e_type != ET_EXEC) {
    return std::nullopt;
  }
  // Before CUDA 13.
  if (header->e_ident[EI_OSABI] == 0x33 && header->e_ident[EI_ABIVERSION] == 7) {
    return header->e_flags >> 16 & 0xFF;
  }
  if (header->e_ident[EI_OSABI] != 0x41 || header->e_ident[EI_ABIVERSION] != 8 ||
      header->e_shentsize != sizeof(Elf64_Shdr)) {
    return std::nullopt;
  }
  const auto sections =
      part(*elf, header->e_shoff, std::uint64_t{header->e_shnum} * sizeof(Elf64_Shdr));
  if (!sections) return std::nullopt;
  // The note of .note.nv.cuinfo.
  struct Note {
    Elf64_Nhdr header;
    char name[12];
    std::uint16_t version;
    std::uint16_t sourceArchitecture;
  };
  constexpr std::uint32_t kCudaInfo = 1000;
  for (std::size_t i = 0; i < header->e_shnum; ++i) {
    const auto section = *read<Elf64_Shdr>(*sections, i * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_NOTE) continue;
    const auto notes = part(*elf, section.sh_offset, section.sh_size);
    if (!notes) return std::nullopt;
    const auto note = read<Note>(*notes, 0);
    if (note && note->header.n_type == kCudaInfo && note->version == 2 &&
        note->header.n_namesz == sizeof(note->name) && note->header.n_descsz >= 4 &&
        std::memcmp(note->name, "NVIDIA Corp", sizeof(note->name)) == 0) {
      return note->sourceArchitecture;
    }
  }
  return std::nullopt;
}

// The PTX that the driver may compile if there is no machine code: of the highest architecture, in
// one or several variants. Empty if that is not certain.
std::vector<const Entry*> ptxToCompile(const std::vector<Entry>& entries, std::uint32_t device) {
  std::vector<const Entry*> best;
  for (const Entry& entry : entries) {
    const std::uint32_t architecture = entry.architecture();
    if (entry.header.kind != kPtx || architecture > device) continue;
    if (entry.variant() != 0 && architecture / 10 != device / 10) continue;
    if ((entry.variant() & kThisDeviceOnly) != 0 && architecture != device) continue;
    if (!best.empty() && architecture < best.front()->architecture()) continue;
    if (!best.empty() && architecture > best.front()->architecture()) best.clear();
    best.push_back(&entry);
  }
  // Which devices are a family is known to the driver alone.
  if (std::any_of(best.begin(), best.end(), [&](const Entry* entry) {
        return entry->variant() != 0 && entry->architecture() != device;
      })) {
    return {};
  }
  return best;
}

// The machine code that the driver may run, and more rather than less.
std::vector<const Entry*> codeToRun(const std::vector<Entry>& entries, std::uint32_t device) {
  const bool exact = std::any_of(entries.begin(), entries.end(), [&](const Entry& entry) {
    return entry.header.kind == kElf && entry.architecture() == device;
  });
  std::vector<const Entry*> found;
  for (const Entry& entry : entries) {
    const std::uint32_t architecture = entry.architecture();
    if (entry.header.kind == kElf &&
        (exact ? architecture == device
               : architecture < device && architecture / 10 == device / 10)) {
      found.push_back(&entry);
    }
  }
  return found;
}

bool sameTarget(const Entry& a, const Entry& b) {
  return a.architecture() == b.architecture() && a.variant() == b.variant();
}

// The ELF file names an architecture and no variant, so the entries' variants have to do.
bool compiledFrom(const Entry& code, const Entry& ptx) {
  return code.variant() == ptx.variant() &&
         (code.header.flags & kDebug) == (ptx.header.flags & kDebug) &&
         sourceArchitecture(code) == ptx.architecture();
}

// Whether the PTX is to be linked with other code; true if its options are not understood.
bool isToBeLinked(const Entry& ptx) {
  if (ptx.header.optionsAt == 0) return false;
  const Bytes header = ptx.bytes.first(ptx.header.headerBytes);
  const auto options = read<OptionsHeader>(header, ptx.header.optionsAt);
  if (!options) return true;
  const auto text = part(header, options->textAt, options->textBytes);
  if (!text) return true;
  std::string_view rest(reinterpret_cast<const char*>(text->data()), text->size());
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find_first_of(std::string_view(" \0", 2)), rest.size());
    const std::string_view word = rest.substr(0, end);
    if (word == "-c" || word == "--compile-only") return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

std::optional<std::string> textOf(const Entry& ptx) {
  std::string buffer;
  if (std::max(ptx.header.payloadBytes, ptx.header.decompressedBytes) > kMaxPtx) {
    return std::nullopt;
  }
  const auto content = contentOf(ptx, buffer);
  if (!content) return std::nullopt;
  const std::string_view all(reinterpret_cast<const char*>(content->data()), content->size());
  const std::size_t end = std::min(all.find('\0'), all.size());
  if (all.find_first_not_of('\0', end) != std::string_view::npos) return std::nullopt;
  if (!beginsAsPtx(all.data(), end)) return std::nullopt;
  if (buffer.empty()) return std::string(all.substr(0, end));
  buffer.resize(end);
  return buffer;
}

// Before and after the letter of `.target sm_90a`.
std::pair<std::string_view, std::string_view> aroundVariant(std::string_view text) {
  constexpr std::string_view kTarget = "\n.target sm_";
  const std::size_t begin = text.find(kTarget);
  if (begin == std::string_view::npos) return {text, {}};
  const std::size_t end = text.find_first_not_of("0123456789", begin + kTarget.size());
  if (end == std::string_view::npos) return {text, {}};
  const bool hasVariant = text[end] == 'a' || text[end] == 'f';
  return {text.substr(0, end), text.substr(end + (hasVariant ? 1 : 0))};
}

// The text of all of `variants`, for what -arch=sm_90a makes: sm_90a code with compute_90's and
// compute_90a's PTX, which are the same unless the program uses what only the latter has. nullopt
// if they differ.
std::optional<std::string> textOfAll(const std::vector<const Entry*>& variants) {
  constexpr std::size_t kMaxVariants = 3;
  if (variants.empty() || variants.size() > kMaxVariants) return std::nullopt;
  auto text = textOf(*variants.front());
  for (std::size_t i = 1; i < variants.size() && text; ++i) {
    const auto other = textOf(*variants[i]);
    if (!other || aroundVariant(*text) != aroundVariant(*other)) return std::nullopt;
  }
  return text;
}

}  // namespace

std::span<const std::byte> fatBinaryOf(const void* image) {
  if (image == nullptr) return {};
  if (beginsWith(image, kWrapperMagic)) {
    Wrapper wrapper;
    std::memcpy(&wrapper, image, sizeof(wrapper));
    if (wrapper.version != 1 || wrapper.fatBinary == nullptr || wrapper.others != nullptr) {
      return {};
    }
    image = wrapper.fatBinary;
  }
  if (!beginsWith(image, kMagic)) return {};
  Header header;
  std::memcpy(&header, image, sizeof(header));
  if (header.bytes > kMaxFatBinary) return {};
  return {static_cast<const std::byte*>(image), sizeof(header) + header.bytes};
}

std::optional<std::string> ptxOfFatBinary(std::span<const std::byte> bytes, int computeCapability) {
  const auto entries = entriesOf(bytes);
  if (!entries || computeCapability <= 0) return std::nullopt;
  const auto device = static_cast<std::uint32_t>(computeCapability);
  const auto variants = ptxToCompile(*entries, device);
  if (std::any_of(variants.begin(), variants.end(),
                  [](const Entry* ptx) { return isToBeLinked(*ptx); })) {
    return std::nullopt;
  }
  const auto codes = codeToRun(*entries, device);
  for (auto code = codes.begin(); code != codes.end(); ++code) {
    // Two of one target come from different texts.
    if (std::any_of(codes.begin(), code,
                    [&](const Entry* other) { return sameTarget(**code, *other); }) ||
        std::none_of(variants.begin(), variants.end(),
                     [&](const Entry* ptx) { return compiledFrom(**code, *ptx); })) {
      return std::nullopt;
    }
  }
  return textOfAll(variants);
}

std::optional<std::string> ptxOf(const void* image, int computeCapability) {
  if (image == nullptr) return std::nullopt;
  if (const Bytes fatBinary = fatBinaryOf(image); !fatBinary.empty()) {
    return ptxOfFatBinary(fatBinary, computeCapability);
  }
  const auto* text = static_cast<const char*>(image);
  if (!beginsAsPtx(text, kMaxPtx)) return std::nullopt;
  const std::size_t length = strnlen(text, kMaxPtx);
  if (length == kMaxPtx) return std::nullopt;
  return std::string(text, length);
}

bool mayHavePtx(const void* image) {
  if (image == nullptr) return false;
  const Bytes fatBinary = fatBinaryOf(image);
  if (fatBinary.empty()) return beginsAsPtx(static_cast<const char*>(image), kMaxPtx);
  const auto entries = entriesOf(fatBinary);
  return entries && std::any_of(entries->begin(), entries->end(),
                                [](const Entry& entry) { return entry.header.kind == kPtx; });
}

}  // namespace gmac::device_code
