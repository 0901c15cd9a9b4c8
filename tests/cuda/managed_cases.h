// SPDX-License-Identifier: Apache-2.0
//
// The cases of the managed-memory programs, by name: the programs run them, the test selects them.
#ifndef GMAC_TESTS_CUDA_MANAGED_CASES_H_
#define GMAC_TESTS_CUDA_MANAGED_CASES_H_

// Behaviour of real managed memory that managed mode must have too.
#define GMAC_MANAGED_CASES(X)        \
  X(allocatesAndFails)               \
  X(frees)                           \
  X(launchesAndReads)                \
  X(readsWithoutWaiting)             \
  X(followsPointers)                 \
  X(answersForPointers)              \
  X(answersForRanges)                \
  X(prefetchesBothWays)              \
  X(readsMostlyAndWrites)            \
  X(writesALittleOfWhatIsReadMostly) \
  X(attaches)                        \
  X(copiesInEveryDirection)          \
  X(copiesRowsAndBlocks)             \
  X(fills)                           \
  X(copiesToAndFromArrays)           \
  X(copiesBatches)                   \
  X(usesOtherMemoryBeside)           \
  X(replaysGraphs)                   \
  X(buildsGraphs)                    \
  X(runsHostFunctions)               \
  X(waitsForEvents)                  \
  X(usesTwoThreads)                  \
  X(takesResultsInManagedMemory)     \
  X(hasManagedMemory)                \
  X(resets)

// Those of the program that keeps its arrays in a pool.
#define GMAC_POOL_CASES(X) \
  X(copiesRanges)          \
  X(copiesRows)            \
  X(copiesLayers)          \
  X(copiesToAndFromArrays) \
  X(copiesSymbols)         \
  X(copiesBatches)         \
  X(fills)                 \
  X(readsByTextures)       \
  X(replaysCapturedCopies) \
  X(buildsGraphsOfCopies)  \
  X(advisesAndPrefetches)

// Launches whose arguments lie in managed memory are read by the driver itself.
#define GMAC_MANAGED_ARGUMENTS keepsArgumentsInManagedMemory

// Exit status of a program that found no device, after saying so.
#define GMAC_MANAGED_NO_DEVICE 77

#endif  // GMAC_TESTS_CUDA_MANAGED_CASES_H_
