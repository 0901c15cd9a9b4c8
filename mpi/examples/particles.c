/* SPDX-License-Identifier: Apache-2.0
 *
 * Particles on a ring: each process has a part of it, and sends those that leave its part to the
 * next one. How many arrive, the receiver learns from a probe. */
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>

#include "mpi/examples/memory.h"

enum { kOwn = 4000, kRoom = 4 * kOwn, kSteps = 30 };

typedef struct {
  double place; /* in [0, 1) of the part that it is in */
  int number;
  float speed;
} Particle;

typedef struct {
  Particle* particles;
  int count;
} Part;

static void move(void* arguments) {
  const Part part = *(const Part*)arguments;
  for (int i = 0; i < part.count; ++i) part.particles[i].place += part.particles[i].speed;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int size = 0;
  int rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);

  const int lengths[] = {1, 1, 1};
  const MPI_Aint places[] = {offsetof(Particle, place), offsetof(Particle, number),
                             offsetof(Particle, speed)};
  const MPI_Datatype members[] = {MPI_DOUBLE, MPI_INT, MPI_FLOAT};
  MPI_Datatype packed;
  MPI_Datatype particle;
  MPI_Type_create_struct(3, lengths, places, members, &packed);
  MPI_Type_create_resized(packed, 0, sizeof(Particle), &particle);
  MPI_Type_commit(&particle);

  Particle* const own = field_new(sizeof(Particle) * kRoom);
  Particle* const leaving = field_new(sizeof(Particle) * kRoom);
  int count = kOwn;
  for (int i = 0; i < kOwn; ++i) {
    own[i].place = (i * 7919 % kOwn) / (double)kOwn;
    own[i].number = rank * kOwn + i;
    own[i].speed = (float)(i % 17) / 100;
  }

  for (int step = 0; step < kSteps; ++step) {
    const Part part = {own, count};
    field_run(&move, &part, sizeof part);
    int left = 0;
    int kept = 0;
    for (int i = 0; i < count; ++i) {
      if (own[i].place < 1) {
        own[kept++] = own[i];
      } else {
        leaving[left] = own[i];
        leaving[left++].place -= 1;
      }
    }
    MPI_Request request;
    MPI_Status status;
    int arriving = 0;
    MPI_Isend(leaving, left, particle, (rank + 1) % size, step, MPI_COMM_WORLD, &request);
    MPI_Probe(MPI_ANY_SOURCE, step, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, particle, &arriving);
    if (kept + arriving > kRoom) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Recv(own + kept, arriving, particle, status.MPI_SOURCE, step, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    count = kept + arriving;
  }

  double sums[2] = {0, 0};
  double all[2] = {0, 0};
  for (int i = 0; i < count; ++i) {
    sums[0] += 1;
    sums[1] += own[i].place * own[i].number;
  }
  MPI_Reduce(sums, all, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("particles: %.0f, %.17g\n", all[0], all[1]);
  field_free(own);
  field_free(leaving);
  MPI_Type_free(&packed);
  MPI_Type_free(&particle);
  MPI_Finalize();
  return 0;
}
