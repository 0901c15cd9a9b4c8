// SPDX-License-Identifier: Apache-2.0
//
// Magnetic resonance imaging FHD (Table 2): F^H d(x) = sum over samples of rho(k) exp(2 pi i k.x),
// rho being conj(phi) d, the image-specific vector of non-Cartesian reconstruction. One kernel
// computes rho; the CPU reads it back and joins it with the trajectory in constant memory, chunk by
// chunk, for the other.
//
// mri-fhd-*.in   float kx[samples], ky, kz, phiR, phiI, dR, dI, then float x[voxels], y, z
// mri-fhd-*.out  float fhdR[voxels], fhdI
// mri-fhd-*.ref  double fhdR[sampled voxels], fhdI
#ifndef GMAC_PARBOIL_MRI_FHD_MRI_FHD_H_
#define GMAC_PARBOIL_MRI_FHD_MRI_FHD_H_

#include <cstddef>
#include <span>
#include <vector>

#include "parboil/benchmark.h"
#include "parboil/files.h"
#include "parboil/kernel.h"
#include "parboil/mri/mri.h"

namespace parboil::mrifhd {

inline constexpr FileFormat kInput{"mri-fhd.in", 1};
inline constexpr FileFormat kOutput{"mri-fhd.out", 1};
inline constexpr FileFormat kReference{"mri-fhd.ref", 1};

inline constexpr unsigned kRhoThreads = 512;
inline constexpr unsigned kFhdThreads = 256;
// Samples in constant memory at a time.
inline constexpr std::size_t kChunk = 512;
// Bound of |rho| for phi and d with parts in [-1, 1).
inline constexpr double kMagnitude = 2;

// A sample as the FHD kernel wants it.
struct Sample {
  float kx, ky, kz, rhoR, rhoI;
};

struct Input {
  mri::Points trajectory;
  std::vector<float> phiR, phiI, dR, dI;
  mri::Points voxels;
};

Input makeInput(const mri::Parameters& parameters);
// The CPU's part: joins what the first kernel computed with the trajectory.
std::vector<Sample> joinSamples(const mri::Points& trajectory, const float* rhoR,
                                const float* rhoI);
mri::Sums reference(const mri::Parameters& parameters, const Input& input);

// (rhoR, rhoI)[k] = conj(phi[k]) * d[k] for k < samples, one thread each.
using RhoKernel =
    Kernel<const float*, const float*, const float*, const float*, float*, float*, unsigned>;
const RhoKernel& rhoKernel();
void rhoBlock(const adsmThreadBlock_t* block, void** args);
const void* rhoSymbol();

// (fhdR, fhdI)[i] += the `count` samples in constant memory, for i < voxels, one thread each.
using FhdKernel =
    Kernel<const float*, const float*, const float*, float*, float*, unsigned, unsigned>;
const FhdKernel& fhdKernel();
inline constexpr const char* kSamplesConstant = "mriFhdSamples";
extern Sample hostSamples[kChunk];
void fhdBlock(const adsmThreadBlock_t* block, void** args);
const void* fhdSymbol();
const void* samplesSymbol();

void generate(const Context& context);
void runGmac(const Context& context);
void runExplicit(const Context& context);
Check check(const Context& context);

}  // namespace parboil::mrifhd

#endif  // GMAC_PARBOIL_MRI_FHD_MRI_FHD_H_
