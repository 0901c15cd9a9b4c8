! SPDX-License-Identifier: Apache-2.0
!
! Heat in a channel that is cut into layers: halo.c's exchange in Fortran. The border planes of an
! array of three dimensions go as subarrays: along the third dimension they are contiguous, and
! those along the first, which close the ring of each process with itself, are not.
module channel
  use, intrinsic :: iso_c_binding
  use mpi
  implicit none
  integer, parameter :: edge = 20, width = edge + 2

  interface
    function field_new(bytes) bind(c)
      import :: c_ptr, c_size_t
      integer(c_size_t), value :: bytes
      type(c_ptr) :: field_new
    end function
    subroutine field_free(field) bind(c)
      import :: c_ptr
      type(c_ptr), value :: field
    end subroutine
    subroutine field_run(body, arguments, bytes) bind(c)
      import :: c_funptr, c_ptr, c_size_t
      type(c_funptr), value :: body
      type(c_ptr), value :: arguments
      integer(c_size_t), value :: bytes
    end subroutine
  end interface

contains

  ! Its argument: the addresses of two fields.
  subroutine smooth(arguments) bind(c)
    type(c_ptr), value :: arguments
    type(c_ptr), pointer :: fields(:)
    real(c_double), pointer :: from(:, :, :), to(:, :, :)
    integer :: x, y, z
    call c_f_pointer(arguments, fields, [2])
    call c_f_pointer(fields(1), from, [width, width, width])
    call c_f_pointer(fields(2), to, [width, width, width])
    do z = 2, edge + 1
      do y = 2, edge + 1
        do x = 2, edge + 1
          to(x, y, z) = (from(x - 1, y, z) + from(x + 1, y, z) + from(x, y - 1, z) + from(x, y + 1, z) &
                         + from(x, y, z - 1) + from(x, y, z + 1)) / 6
        end do
      end do
    end do
  end subroutine

  ! The inner part of a plane, number `place` (from 0) along a dimension.
  integer function plane(dimension, place)
    integer, intent(in) :: dimension, place
    integer :: subsizes(3), starts(3), ierror
    subsizes = edge
    starts = 1
    subsizes(dimension) = 1
    starts(dimension) = place
    call MPI_Type_create_subarray(3, [width, width, width], subsizes, starts, MPI_ORDER_FORTRAN, &
                                  MPI_DOUBLE_PRECISION, plane, ierror)
    call MPI_Type_commit(plane, ierror)
  end function
end module

program halo
  use channel
  implicit none
  integer, parameter :: steps = 20
  integer :: ierror, rank, size, step, up, down, x, y, z, i
  integer :: planes(8)
  type(c_ptr), target :: fields(2)
  type(c_ptr) :: other
  real(c_double), pointer :: values(:, :, :)
  double precision :: total, all

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierror)
  up = mod(rank + 1, size)
  down = mod(rank + size - 1, size)

  ! What is sent and where it is received: to the next process and to the one before; and both ways around.
  planes = [plane(3, edge), plane(3, 0), plane(3, 1), plane(3, edge + 1), &
            plane(1, edge), plane(1, 0), plane(1, 1), plane(1, edge + 1)]
  do i = 1, 2
    fields(i) = field_new(8_c_size_t * width**3)
    call c_f_pointer(fields(i), values, [width, width, width])
    do z = 1, width
      do y = 1, width
        do x = 1, width
          values(x, y, z) = mod(x * 7 + y * 13 + z * 29 + rank * 5, 23)
        end do
      end do
    end do
  end do

  do step = 1, steps
    call c_f_pointer(fields(1), values, [width, width, width])
    call MPI_Sendrecv(values, 1, planes(1), up, 1, values, 1, planes(2), down, 1, MPI_COMM_WORLD, &
                      MPI_STATUS_IGNORE, ierror)
    call MPI_Sendrecv(values, 1, planes(3), down, 2, values, 1, planes(4), up, 2, MPI_COMM_WORLD, &
                      MPI_STATUS_IGNORE, ierror)
    call MPI_Sendrecv(values, 1, planes(5), rank, 3, values, 1, planes(6), rank, 3, MPI_COMM_WORLD, &
                      MPI_STATUS_IGNORE, ierror)
    call MPI_Sendrecv(values, 1, planes(7), rank, 4, values, 1, planes(8), rank, 4, MPI_COMM_WORLD, &
                      MPI_STATUS_IGNORE, ierror)
    call field_run(c_funloc(smooth), c_loc(fields), 16_c_size_t)
    other = fields(1)
    fields(1) = fields(2)
    fields(2) = other
  end do

  call c_f_pointer(fields(1), values, [width, width, width])
  total = 0
  do z = 2, edge + 1
    do y = 2, edge + 1
      do x = 2, edge + 1
        total = total + values(x, y, z) * (x + 2 * y + 3 * z)
      end do
    end do
  end do
  call MPI_Reduce(total, all, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD, ierror)
  if (rank == 0) print '(a, es24.16)', 'halo in Fortran:', all
  do i = 1, 8
    call MPI_Type_free(planes(i), ierror)
  end do
  call field_free(fields(1))
  call field_free(fields(2))
  call MPI_Finalize(ierror)
end program
