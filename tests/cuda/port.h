// SPDX-License-Identifier: Apache-2.0
//
// Uses of shared objects in a CUDA program that keeps its own launches, waits, copies and fills.
// Each function is one such program; it returns "" or the failure.
#ifndef GMAC_TESTS_CUDA_PORT_H_
#define GMAC_TESTS_CUDA_PORT_H_

#include <string>

namespace gmac::port {

// "" when CUDA has a device here, else why not.
std::string whyNoDevice();

std::string launchesOnTheDefaultStream();
std::string launchesOnAStreamOfItsOwn();
std::string waitsForAnEvent();
std::string readsWithoutWaiting();
std::string copiesInEveryDirection();
std::string copiesRows();
std::string fillsAndFillsLater();
std::string replaysAGraph();
std::string copiesSafeObjects();
std::string refusesWhatItCannotServe();
std::string answersForPointers();

}  // namespace gmac::port

#endif  // GMAC_TESTS_CUDA_PORT_H_
