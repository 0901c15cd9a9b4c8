// SPDX-License-Identifier: Apache-2.0
//
// The Boys function, F_m(T) = integral over t in [0, 1] of t^2m exp(-T t^2), which the integrals of
// s functions are made of and whose values are the moments of the Rys polynomials' weight.
#ifndef GMAC_PARBOIL_RPES_BOYS_H_
#define GMAC_PARBOIL_RPES_BOYS_H_

namespace parboil::rpes {

// values[m] = F_m(t) for m <= last, to nearly double precision; t >= 0, last <= 12.
void boys(double t, int last, double* values);

}  // namespace parboil::rpes

#endif  // GMAC_PARBOIL_RPES_BOYS_H_
