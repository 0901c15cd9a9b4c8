// SPDX-License-Identifier: Apache-2.0
//
// fmt, compiled once. Debian has it as headers and as a shared library; the library that we ship
// needs no other, and headers alone make every source pay a second of compilation for them.
#include <fmt/format-inl.h>

namespace fmt::detail {

template void vformat_to<char>(
    buffer<char>&, string_view,
    basic_format_args<
        basic_format_context<std::conditional_t<std::is_same_v<type_identity_t<char>, char>,
                                                appender, std::back_insert_iterator<buffer<char>>>,
                             char>>,
    locale_ref);
template void buffer<char>::append(const char*, const char*);
template thousands_sep_result<char> thousands_sep_impl<char>(locale_ref);
template char decimal_point_impl<char>(locale_ref);
template dragonbox::decimal_fp<float> dragonbox::to_decimal<float>(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal<double>(double) noexcept;
template locale_ref::locale_ref(const std::locale&);
template std::locale locale_ref::get<std::locale>() const;

}  // namespace fmt::detail
