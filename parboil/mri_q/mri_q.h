// SPDX-License-Identifier: Apache-2.0
//
// Magnetic resonance imaging Q (Table 2): Q(x) = sum over samples of |phi(k)|^2 exp(2 pi i k.x),
// the scanner's configuration, for non-Cartesian reconstruction. One kernel computes |phi|^2; the
// CPU reads it back and joins it with the trajectory in constant memory, chunk by chunk, for the
// other.
//
// mri-q-*.in   float kx[samples], ky, kz, phiR, phiI, then float x[voxels], y, z
// mri-q-*.out  float qr[voxels], qi
// mri-q-*.ref  double qr[sampled voxels], qi
#ifndef GMAC_PARBOIL_MRI_Q_MRI_Q_H_
#define GMAC_PARBOIL_MRI_Q_MRI_Q_H_

#include <cstddef>
#include <span>
#include <vector>

#include "parboil/benchmark.h"
#include "parboil/files.h"
#include "parboil/kernel.h"
#include "parboil/mri/mri.h"

namespace parboil::mriq {

inline constexpr FileFormat kInput{"mri-q.in", 1};
inline constexpr FileFormat kOutput{"mri-q.out", 1};
inline constexpr FileFormat kReference{"mri-q.ref", 1};

inline constexpr unsigned kPhiThreads = 512;
inline constexpr unsigned kQThreads = 256;
// Samples in constant memory at a time.
inline constexpr std::size_t kChunk = 1024;
// Bound of |phi|^2 for phiR and phiI in [-1, 1).
inline constexpr double kMagnitude = 2;

// A sample as the Q kernel wants it.
struct Sample {
  float kx, ky, kz, phiMag;
};

struct Input {
  mri::Points trajectory;
  std::vector<float> phiR, phiI;
  mri::Points voxels;
};

Input makeInput(const mri::Parameters& parameters);
// The CPU's part: joins what the first kernel computed with the trajectory.
std::vector<Sample> joinSamples(const mri::Points& trajectory, const float* phiMag);
mri::Sums reference(const mri::Parameters& parameters, const Input& input);

// phiMag[k] = phiR[k]^2 + phiI[k]^2 for k < samples, one thread each.
using PhiMagKernel = Kernel<const float*, const float*, float*, unsigned>;
const PhiMagKernel& phiMagKernel();
void phiMagBlock(const adsmThreadBlock_t* block, void** args);
const void* phiMagSymbol();

// (qr, qi)[i] += the `count` samples in constant memory, for i < voxels, one thread each.
using QKernel =
    Kernel<const float*, const float*, const float*, float*, float*, unsigned, unsigned>;
const QKernel& qKernel();
inline constexpr const char* kSamplesConstant = "mriQSamples";
extern Sample hostSamples[kChunk];
void qBlock(const adsmThreadBlock_t* block, void** args);
const void* qSymbol();
const void* samplesSymbol();

void generate(const Context& context);
void runGmac(const Context& context);
void runExplicit(const Context& context);
Check check(const Context& context);

}  // namespace parboil::mriq

#endif  // GMAC_PARBOIL_MRI_Q_MRI_Q_H_
