/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/examples/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gmac/api/adsm.h"

/* Not there unless gmac is in the process: nothing is linked. */
#pragma weak adsmAlloc
#pragma weak adsmFree
#pragma weak adsmKernelCreate
#pragma weak adsmCall
#pragma weak adsmLastErrorString

typedef struct {
  char bytes[64];
} Arguments;
typedef void (*Body)(void* arguments);

static void require(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "%s: %s\n", what, adsmAlloc != NULL ? adsmLastErrorString() : "failed");
  exit(1);
}

void* field_new(size_t bytes) {
  void* const field = adsmAlloc != NULL ? adsmAlloc(bytes) : malloc(bytes);
  require(field != NULL, "memory");
  return field;
}

void field_free(void* field) {
  if (adsmAlloc != NULL) {
    require(adsmFree(field) == adsmSuccess, "adsmFree");
  } else {
    free(field);
  }
}

static void run_on_device(const adsmThreadBlock_t* block, void** args) {
  Body body;
  Arguments arguments;
  (void)block;
  memcpy(&body, args[0], sizeof body);
  memcpy(&arguments, args[1], sizeof arguments);
  body(&arguments);
}

void field_run(Body body, const void* arguments, size_t bytes) {
  static adsmKernel_t kernel = NULL;
  Arguments copy = {{0}};
  require(bytes <= sizeof copy, "too many arguments");
  memcpy(&copy, arguments, bytes);
  if (adsmAlloc == NULL) {
    body(&copy);
    return;
  }
  if (kernel == NULL) {
    static const size_t sizes[] = {sizeof(Body), sizeof(Arguments)};
    adsmKernelDesc_t desc = {0};
    desc.name = "field_run";
    desc.paramCount = 2;
    desc.paramSizes = sizes;
    desc.host = &run_on_device;
    require(adsmKernelCreate(&desc, &kernel) == adsmSuccess, "adsmKernelCreate");
  }
  const adsmDim_t one = {1, 1, 1};
  void* args[] = {&body, &copy};
  require(adsmCall(kernel, one, one, 0, args) == adsmSuccess, "adsmCall");
}
