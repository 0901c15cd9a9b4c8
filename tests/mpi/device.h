// SPDX-License-Identifier: Apache-2.0
//
// Memory of CUDA's for the programs of this folder. On a driver without a device the CPU may look
// at it through another address; with GMAC_TEST_DRIVER=real the driver is the machine's, and device
// memory is managed memory, which the CPU reaches. GMAC_TEST_DRIVER=fake: programs that use no
// device memory find the driver without a device as well.
#ifndef GMAC_TESTS_MPI_DEVICE_H_
#define GMAC_TESTS_MPI_DEVICE_H_

#include <cstddef>

namespace gmac::testing {

// Whether the driver is one without a device: it counts calls, shows devices at will, and runs
// kernels only when somebody waits.
bool usesFakeDriver();

// Loads the driver, as the program's CUDA runtime would when it is first used; and initialises it
// and makes a context. False: this build has no CUDA.
bool loadDriver();
bool startDevice();

// Makes the driver show so many devices, before it is initialised; and whether they reach each
// other's memory.
void showDevices(int count, bool reachEachOther = true);
// A program's CUDA runtime begins so, through the functions that it finds; and the device on which
// the calling thread then works, -1 for none.
void initialiseCuda();
int currentDevice();
// Makes a context of that device current.
void chooseDevice(int device);
// The device that memory is on.
int deviceOf(const void* memory);

// From now on the driver without a device imports nothing of another process.
void refuseImports();
// One of the next imports is refused, and others are not. By the first, the two would prove that
// they reach each other; the second would be of the application's memory.
void refuseOneImport(std::size_t which);
// The next launch of a kernel fails.
void failNextLaunch();
// Of the driver's function the n-th next call fails; 0: none. (Only without a device.)
void failNthCall(const char* name, std::size_t n);
// From now on nothing of this process is exported; and the next export is refused, and others are
// not.
void refuseExports();
void refuseOneExport();

void* allocateOnDevice(std::size_t bytes);
void freeOnDevice(void* memory);
// Where the CPU finds what is in device memory.
unsigned char* behindDevice(void* memory);

// Memory of the device's that other processes may import: an allocation of its own, which the CPU
// does not look at, on a real device either.
void* allocateExportable(std::size_t bytes);
void freeExportable(void* memory);
// Of the device; what the runtime keeps included.
std::size_t freeDeviceMemory();
void copyToDevice(void* device, const void* from, std::size_t bytes);
void copyFromDevice(void* to, const void* device, std::size_t bytes);

// Managed memory, for programs that run with GMAC_MANAGED=1, where it is shared objects.
void* allocateManaged(std::size_t bytes);
void freeManaged(void* memory);

// Memory of the CPU's that the device reaches.
void* allocatePinned(std::size_t bytes);
void freePinned(void* memory);

// One that the program has made, the default stream of all, or that of the thread.
enum class StreamKind { kOwn, kDefault, kThreads };
// Lets a kernel on a stream write `value` to the bytes, which happens once somebody waits for that
// stream.
void fillLater(void* memory, unsigned char value, std::size_t bytes, StreamKind stream);

// Waits for all of them.
void finishStreams();

// How often the driver's function has been called.
std::size_t deviceCalls(const char* name);

}  // namespace gmac::testing

#endif  // GMAC_TESTS_MPI_DEVICE_H_
