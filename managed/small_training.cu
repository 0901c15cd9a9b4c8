// SPDX-License-Identifier: Apache-2.0
//
// A small network that is trained one sample at a time: for each sample the CPU writes the inputs
// and the target now and then (the others are made on the GPU), and four tiny kernels go forward
// and back. Nearly all of the time is the launching. Whole numbers throughout, so that CPU and GPU
// agree to the bit. Result: the weights.
#include "managed/program.h"

namespace {

using namespace managed;

constexpr int kInputs = 48;
constexpr int kHidden = 32;
constexpr int kLaunchesOfSample = 4;
constexpr unsigned kSamplesOfWrite = 10;  // the CPU writes every so many samples

struct Network {
  int input[kInputs];
  int hidden[kHidden];
  int change[kHidden];  // of each hidden unit
  int target;
  int output;
  int first[kInputs][kHidden];  // weights, in 1/4096
  int second[kHidden];
};

__host__ __device__ int clamped(int value) {
  return value > 1 << 20 ? 1 << 20 : value < -(1 << 20) ? -(1 << 20) : value;
}
__host__ __device__ int scaled(int a, int b) {
  return clamped(static_cast<int>(static_cast<long long>(a) * b >> 12));
}
// The rule by which the inputs of one sample become those of the next.
__host__ __device__ int nextInput(int input, int sample) {
  const unsigned word =
      (static_cast<unsigned>(input) ^ static_cast<unsigned>(sample)) * 2654435761U;
  return static_cast<int>(word >> 20) - 2048;
}
__host__ __device__ void hiddenUnit(Network& net, int unit) {
  int sum = 0;
  for (int i = 0; i < kInputs; ++i) sum = clamped(sum + scaled(net.input[i], net.first[i][unit]));
  net.hidden[unit] = sum > 0 ? sum : sum / 8;
}
__host__ __device__ void outputUnit(Network& net) {
  int sum = 0;
  for (int i = 0; i < kHidden; ++i) sum = clamped(sum + scaled(net.hidden[i], net.second[i]));
  net.output = sum;
}
__host__ __device__ void backUnit(Network& net, int unit) {
  const int error = (net.target - net.output) / 16;
  net.change[unit] = scaled(error, net.second[unit]);
  net.second[unit] = clamped(net.second[unit] + scaled(error, net.hidden[unit] >> 8));
}
__host__ __device__ void weightsUnit(Network& net, int unit) {
  for (int i = 0; i < kInputs; ++i) {
    net.first[i][unit] = clamped(net.first[i][unit] + scaled(net.change[unit], net.input[i] >> 4));
  }
}

__global__ void forwardHidden(Network* net) { hiddenUnit(*net, static_cast<int>(threadIdx.x)); }
__global__ void forwardOutput(Network* net) { outputUnit(*net); }
__global__ void back(Network* net) { backUnit(*net, static_cast<int>(threadIdx.x)); }
__global__ void weights(Network* net, int sample) {
  const int unit = static_cast<int>(threadIdx.x);
  weightsUnit(*net, unit);
  __syncthreads();
  for (int i = unit; i < kInputs; i += kHidden) net->input[i] = nextInput(net->input[i], sample);
}

void begin(Network& net) {
  for (int i = 0; i < kInputs; ++i) {
    for (int unit = 0; unit < kHidden; ++unit) {
      net.first[i][unit] = static_cast<int>(randomWord(i * kHidden + unit) % 2048) - 1024;
    }
  }
  for (int unit = 0; unit < kHidden; ++unit) {
    net.second[unit] = static_cast<int>(randomWord(99'000 + unit) % 2048) - 1024;
  }
}
// The CPU's part of a sample.
void writeSample(Network& net, unsigned sample) {
  for (int i = 0; i < kInputs; ++i) {
    net.input[i] = static_cast<int>(randomWord(std::uint64_t{sample} * kInputs + i) % 4096) - 2048;
  }
  net.target = static_cast<int>(randomWord(1'000'000 + sample) % 65'536) - 32'768;
}

Outcome train(const Request& request) {
  const unsigned samples = bySize(request.size, 200U, 21'250U, 85'000U);
  Outcome outcome;
  const Clock clock;
  {
    Array<Network> array(1);
    Network& net = array[0];
    net = {};
    begin(net);
    for (unsigned sample = 0; sample < samples; ++sample) {
      if (sample % kSamplesOfWrite == 0) {
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        writeSample(net, sample);
      }
      forwardHidden<<<1, kHidden>>>(array.data());
      forwardOutput<<<1, 1>>>(array.data());
      back<<<1, kHidden>>>(array.data());
      weights<<<1, kHidden>>>(array.data(), static_cast<int>(sample));
    }
    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    append(outcome.result, net.first, sizeof net.first);
    append(outcome.result, net.second, sizeof net.second);
    array.free();
  }
  outcome.seconds = clock.seconds();
  outcome.note = std::to_string(samples * kLaunchesOfSample) + " launches";

  if (request.check) {
    Network net{};
    begin(net);
    for (unsigned sample = 0; sample < samples; ++sample) {
      if (sample % kSamplesOfWrite == 0) writeSample(net, sample);
      for (int unit = 0; unit < kHidden; ++unit) hiddenUnit(net, unit);
      outputUnit(net);
      for (int unit = 0; unit < kHidden; ++unit) backUnit(net, unit);
      for (int unit = 0; unit < kHidden; ++unit) weightsUnit(net, unit);
      for (int& input : net.input) input = nextInput(input, static_cast<int>(sample));
    }
    const auto* const got = reinterpret_cast<const int*>(outcome.result.data());
    outcome.wrong = firstDifference("weight", got, &net.first[0][0], kInputs * kHidden);
    if (outcome.wrong.empty()) {
      outcome.wrong =
          firstDifference("second weight", got + kInputs * kHidden, net.second, kHidden);
    }
  }
  return outcome;
}

}  // namespace

int main(int argc, char** argv) { return runProgram(argc, argv, "small_training", train); }
