! SPDX-License-Identifier: Apache-2.0
!
! A Fortran program whose arrays are shared objects: columns and rows, Fortran's MPI_IN_PLACE and
! MPI_BOTTOM, a persistent request, a window.
module attributes
contains
  ! The base of a window, by the other binding.
  function base_by_f08(handle) result(base)
    use mpi_f08
    integer, intent(in) :: handle
    integer(MPI_ADDRESS_KIND) :: base
    type(MPI_Win) :: window
    logical :: found
    window%MPI_VAL = handle
    call MPI_Win_get_attr(window, MPI_WIN_BASE, base, found)
    if (.not. found) base = 0
  end function
end module

program fortran
  use mpi
  use attributes
  use, intrinsic :: iso_c_binding
  implicit none

  interface
    function shared_alloc(bytes) bind(C, name='sharedAlloc')
      import :: c_ptr, c_size_t
      integer(c_size_t), value :: bytes
      type(c_ptr) :: shared_alloc
    end function
    subroutine shared_flip() bind(C, name='sharedFlip')
    end subroutine
    function windows_here(says) bind(C, name='windowsHere')
      import :: c_int
      integer(c_int), value :: says
      integer(c_int) :: windows_here
    end function
  end interface

  integer, parameter :: n = 300
  integer, parameter :: mask = int(z'5a5a5a5a')
  integer, pointer :: a(:, :)
  integer :: rank, ranks, ierror, row, absolute, request, window, put, i, j
  integer :: status(MPI_STATUS_SIZE)
  integer(MPI_ADDRESS_KIND) :: address(1), attribute
  logical :: found
  type(c_ptr) :: memory

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  memory = shared_alloc(int(4 * n * n, c_size_t))
  call c_f_pointer(memory, a, [n, n])

  ! A row: one element of each column. Rank 0's row 3 becomes rank 1's row 5.
  call MPI_Type_vector(n, 1, n, MPI_INTEGER, row, ierror)
  call MPI_Type_commit(row, ierror)
  call fill()
  if (rank == 0) call MPI_Send(a(3, 1), 1, row, 1, 1, MPI_COMM_WORLD, ierror)
  if (rank == 1) then
    call MPI_Recv(a(5, 1), 1, row, 0, 1, MPI_COMM_WORLD, status, ierror)
    do j = 1, n
      call expect(a(5, j), ieor(3 + 1000 * j, mask), 'a row')
    end do
    call expect(a(6, 1), ieor(6 + 1000, mask), 'the row after it')
  end if

  ! In place.
  call fill()
  call MPI_Allreduce(MPI_IN_PLACE, a, n * n, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierror)
  call expect(a(7, 9), ieor(7 + 9000, mask), 'a maximum')

  ! By its address.
  call fill()
  call MPI_Get_address(a(1, 1), address(1), ierror)
  call MPI_Type_create_hindexed(1, [n], address, MPI_INTEGER, absolute, ierror)
  call MPI_Type_commit(absolute, ierror)
  if (rank == 1) a(:, 1) = 5
  call MPI_Bcast(MPI_BOTTOM, 1, absolute, 0, MPI_COMM_WORLD, ierror)
  do i = 1, n
    call expect(a(i, 1), ieor(i + 1000, mask), 'a column by its address')
  end do

  ! Persistent.
  if (rank == 0) call MPI_Send_init(a, n * n, MPI_INTEGER, 1, 2, MPI_COMM_WORLD, request, ierror)
  if (rank == 1) call MPI_Recv_init(a, n * n, MPI_INTEGER, 0, 2, MPI_COMM_WORLD, request, ierror)
  do j = 1, 3
    if (rank == 0) a(:, 2) = j
    call shared_flip()
    if (rank < 2) then
      call MPI_Start(request, ierror)
      call MPI_Wait(request, status, ierror)
      call expect(a(n, 2), ieor(j, mask), 'a persistent message')
    end if
  end do
  if (rank < 2) call MPI_Request_free(request, ierror)

  if (windows_here(merge(1_c_int, 0_c_int, rank == 0)) /= 0) call windows()
  call MPI_Type_free(row, ierror)
  call MPI_Type_free(absolute, ierror)
  call MPI_Finalize(ierror)
  if (rank == 0) print '(a)', 'Fortran is right'

contains

  subroutine windows()
    ! A window over the array: each puts a number into the next one's.
    call fill()
    call MPI_Win_create(a, int(4 * n * n, MPI_ADDRESS_KIND), 4, MPI_INFO_NULL, MPI_COMM_WORLD, window, ierror)
    call MPI_Get_address(a(1, 1), address(1), ierror)
    call MPI_Win_get_attr(window, MPI_WIN_BASE, attribute, found, ierror)
    call expect(merge(1, 0, found .and. attribute == address(1)), 1, 'the base of a window')
    call expect(merge(1, 0, base_by_f08(window) == address(1)), 1, 'and by mpi_f08')
    call MPI_Win_get_attr(window, MPI_WIN_MODEL, attribute, found, ierror)
    call expect(merge(1, 0, found .and. attribute == MPI_WIN_SEPARATE), 1, 'the model of a window')
    call MPI_Win_get_attr(window, MPI_WIN_SIZE, attribute, found, ierror)
    call expect(int(attribute), 4 * n * n, 'the size of a window')
    call MPI_Win_fence(0, window, ierror)
    put = 70 + rank
    call MPI_Put(put, 1, MPI_INTEGER, mod(rank + 1, ranks), int(n + 4, MPI_ADDRESS_KIND), 1, MPI_INTEGER, window, ierror)
    call MPI_Win_fence(0, window, ierror)
    call expect(a(5, 2), 70 + mod(rank + ranks - 1, ranks), 'what was put')
    call expect(a(6, 2), ieor(6 + 2000, mask), 'the number after it')
    call MPI_Win_free(window, ierror)
  end subroutine

  subroutine fill()
    do j = 1, n
      do i = 1, n
        a(i, j) = i + 1000 * j
      end do
    end do
    call shared_flip()
  end subroutine

  subroutine expect(value, expected, what)
    integer, intent(in) :: value, expected
    character(*), intent(in) :: what
    if (value == expected) return
    print *, 'FAILED: rank', rank, ': ', what, value, expected
    call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
  end subroutine

end program
