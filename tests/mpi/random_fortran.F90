! SPDX-License-Identifier: Apache-2.0
!
!   random_fortran PROGRAMS SEED
!
! Random programs of MPI in Fortran, each run in plain memory and in shared objects, with kernels in
! between: bytes, statuses and errors must be the same. By mpif.h (GMAC_MPIF), the module mpi, or the
! module mpi_f08 (GMAC_F08). The steps are drawn alike by all ranks.
#ifdef GMAC_F08
#define DATATYPE type(MPI_Datatype)
#define REQUEST type(MPI_Request)
#define STATUS type(MPI_Status)
#define STATUS_LIST(n) type(MPI_Status), dimension(n)
#define SOURCE_OF(one) one%MPI_SOURCE
#define TAG_OF(one) one%MPI_TAG
#define NTH(list, i) list(i)
#define USE_MPI use mpi_f08
#define INCLUDE_MPI
#else
#define DATATYPE integer
#define REQUEST integer
#define STATUS integer, dimension(MPI_STATUS_SIZE)
#define STATUS_LIST(n) integer, dimension(MPI_STATUS_SIZE, n)
#define SOURCE_OF(one) one(MPI_SOURCE)
#define TAG_OF(one) one(MPI_TAG)
#define NTH(list, i) list(:, i)
#ifdef GMAC_MPIF
#define USE_MPI
#define INCLUDE_MPI include 'mpif.h'
#else
#define USE_MPI use mpi
#define INCLUDE_MPI
#endif
#endif

module drawing
  implicit none
  integer(8) :: state = 1
contains
  ! Park and Miller, Communications of the ACM 31 (1988): the minimal standard generator.
  integer function draw(least, most)
    integer, intent(in) :: least, most
    state = mod(state * 16807_8, 2147483647_8)
    draw = least + int(mod(state / 8_8, int(most - least + 1, 8)))
  end function
end module

! What a run of a program has seen.
module notes
  implicit none
  type :: notebook
    integer(8), allocatable :: words(:)
    integer :: count = 0
    logical :: failed = .false.  ! MPI's own errors, of calls that are right
  end type
contains
  subroutine write_note(book, word)
    type(notebook), intent(inout) :: book
    integer(8), intent(in) :: word
    integer(8), allocatable :: more(:)
    if (.not. allocated(book%words)) allocate(book%words(256))
    if (book%count == size(book%words)) then
      allocate(more(2 * book%count))
      more(1:book%count) = book%words
      call move_alloc(more, book%words)
    end if
    book%count = book%count + 1
    book%words(book%count) = word
  end subroutine
end module

module memory
  use, intrinsic :: iso_c_binding
  implicit none
  interface
    function shared_take(bytes) bind(C, name='sharedTake')
      import :: c_ptr, c_size_t
      integer(c_size_t), value :: bytes
      type(c_ptr) :: shared_take
    end function
    subroutine shared_give(object) bind(C, name='sharedGive')
      import :: c_ptr
      type(c_ptr), value :: object
    end subroutine
    subroutine shared_flip_of(object, bytes) bind(C, name='sharedFlipOf')
      import :: c_ptr, c_size_t
      type(c_ptr), value :: object
      integer(c_size_t), value :: bytes
    end subroutine
  end interface
  type :: buffer
    integer(1), pointer, contiguous :: b(:) => null()
    type(c_ptr) :: object = c_null_ptr
    logical :: is_shared = .false.
  end type
contains
  ! `way`: what comes before a message: nothing, a kernel, or a kernel and stores of the CPU's.
  subroutine make_buffer(one, bytes, is_shared, seed, way)
    type(buffer), intent(inout) :: one
    integer, intent(in) :: bytes, seed, way
    logical, intent(in) :: is_shared
    integer :: i
    one%is_shared = is_shared
    if (is_shared) then
      one%object = shared_take(int(bytes, c_size_t))
      call c_f_pointer(one%object, one%b, [bytes])
    else
      allocate(one%b(bytes))
    end if
    do i = 1, bytes
      one%b(i) = int(mod(i * 7 + i / 251 + seed, 256) - 128, 1)
    end do
    if (way > 0) call flip(one)
    if (way > 1) then
      do i = 1, bytes, 97
        one%b(i) = int(mod(i, 100), 1)
      end do
    end if
  end subroutine
  subroutine flip(one)
    type(buffer), intent(inout) :: one
    if (one%is_shared) then
      call shared_flip_of(one%object, int(size(one%b), c_size_t))
    else
      one%b = ieor(one%b, int(z'5a', 1))
    end if
  end subroutine
  subroutine free_buffer(one)
    type(buffer), intent(inout) :: one
    if (one%is_shared) then
      call shared_give(one%object)
    else
      deallocate(one%b)
    end if
    one%b => null()
  end subroutine
end module

module steps
  use drawing
  use notes
  use memory
  USE_MPI
  implicit none
  INCLUDE_MPI
  integer :: rank, ranks
  type(notebook) :: book
  logical :: in_objects

  ! Elements of a type: `count` of them, in `room` bytes, with `elements` basic ones.
  type :: shape
    DATATYPE :: made, basic
    logical :: is_made = .false., is_mixed = .false.
    integer :: count = 1, room = 0, elements = 0
  end type

contains

  subroutine note(word)
    integer, intent(in) :: word
    call write_note(book, int(word, 8))
  end subroutine

  subroutine note_result(ierror)
    integer, intent(in) :: ierror
    integer :: class, code
    class = 0
    if (ierror /= MPI_SUCCESS) call MPI_Error_class(ierror, class, code)
    call note(class)
    if (ierror /= MPI_SUCCESS) book%failed = .true.
  end subroutine

  subroutine note_status(one, of)
    STATUS :: one
    DATATYPE, intent(in) :: of
    integer :: count, ierror
    call MPI_Get_count(one, of, count, ierror)
    call note(SOURCE_OF(one))
    call note(TAG_OF(one))
    call note(count)
  end subroutine

  ! A sum that tells bytes at other places apart (Fletcher's, with 64 bits).
  subroutine note_bytes(one)
    type(buffer), intent(in) :: one
    integer(8) :: first, second
    integer :: i
    first = 1
    second = 0
    do i = 1, size(one%b)
      first = mod(first + int(one%b(i), 8) + 129, 4294967291_8)
      second = mod(second + first, 4294967291_8)
    end do
    call write_note(book, first)
    call write_note(book, second)
  end subroutine

  subroutine draw_basic(basic, bytes)
    DATATYPE, intent(out) :: basic
    integer, intent(out) :: bytes
    select case (draw(0, 4))
    case (0)
      basic = MPI_BYTE
      bytes = 1
    case (1)
      basic = MPI_INTEGER
      bytes = 4
    case (2)
      basic = MPI_REAL
      bytes = 4
    case (3)
      basic = MPI_DOUBLE_PRECISION
      bytes = 8
    case default
      basic = MPI_CHARACTER
      bytes = 1
    end select
  end subroutine

  subroutine draw_shape(one)
    type(shape), intent(out) :: one
    integer :: bytes, ierror, i, blocks, size, most
    integer, allocatable :: lengths(:), places(:)
    integer(MPI_ADDRESS_KIND) :: lower, extent, true_lower, true_extent
    DATATYPE :: inner
    call draw_basic(one%basic, bytes)
    most = merge(2000, 40, draw(0, 3) == 0)
    one%is_made = .true.
    select case (draw(0, 6))
    case (0)
      one%made = one%basic
      one%is_made = .false.
      one%count = draw(0, 8 * most)
    case (1)
      call MPI_Type_contiguous(draw(1, 9), one%basic, one%made, ierror)
    case (2)
      blocks = draw(1, 5)
      call MPI_Type_vector(draw(1, most), blocks, blocks + draw(0, 6), one%basic, one%made, ierror)
    case (3)
      call MPI_Type_create_hvector(draw(1, most), 1, int(bytes * draw(1, 5), MPI_ADDRESS_KIND), one%basic, one%made, &
                                   ierror)
    case (4)
      allocate(lengths(draw(1, 12)))
      allocate(places(ubound(lengths, 1)))
      size = 0
      do i = 1, ubound(lengths, 1)
        lengths(i) = draw(1, 6)
        places(i) = size + draw(0, 9)
        size = places(i) + lengths(i)
      end do
      call MPI_Type_indexed(ubound(lengths, 1), lengths, places, one%basic, one%made, ierror)
    case (5)
      call MPI_Type_create_subarray(2, [20, 30], [draw(1, 10), draw(1, 15)], [draw(0, 10), draw(0, 15)], &
                                    MPI_ORDER_FORTRAN, one%basic, one%made, ierror)
    case default
      one%is_mixed = .true.
      call MPI_Type_create_struct(2, [draw(1, 3), draw(1, 3)], [0_MPI_ADDRESS_KIND, 32_MPI_ADDRESS_KIND], &
                                  [MPI_DOUBLE_PRECISION, MPI_INTEGER], inner, ierror)
      call MPI_Type_create_resized(inner, 0_MPI_ADDRESS_KIND, int(48 + 8 * draw(0, 2), MPI_ADDRESS_KIND), one%made, &
                                   ierror)
      call MPI_Type_free(inner, ierror)
    end select
    if (one%is_made) then
      call MPI_Type_commit(one%made, ierror)
      one%count = draw(0, 9)
    end if
    call MPI_Type_get_extent(one%made, lower, extent, ierror)
    call MPI_Type_get_true_extent(one%made, true_lower, true_extent, ierror)
    call MPI_Type_size(one%made, size, ierror)
    one%elements = one%count * size / bytes
    one%room = int(true_lower + true_extent + max(one%count - 1, 0) * extent) + draw(1, 40)
  end subroutine

  subroutine free_shape(one)
    type(shape), intent(inout) :: one
    integer :: ierror
    if (one%is_made) call MPI_Type_free(one%made, ierror)
  end subroutine

  ! A message from one rank to another, or to itself.
  subroutine message()
    type(shape) :: one
    type(buffer) :: sent, received, other
    integer :: from, to, tag, how, ends, ierror, source, asked, room
    logical :: as_basic, flips, flag
    DATATYPE :: wanted
    REQUEST :: sending, receiving, both(2)
    STATUS :: state_of
    STATUS_LIST(2) :: states
    call draw_shape(one)
    from = draw(0, ranks - 1)
    to = draw(0, ranks - 1)
    tag = draw(0, 5)
    how = draw(0, 5)
    ends = draw(0, 3)
    source = merge(MPI_ANY_SOURCE, from, draw(0, 3) == 0)
    asked = merge(MPI_ANY_TAG, tag, draw(0, 3) == 0)
    as_basic = draw(0, 2) == 0 .and. .not. one%is_mixed
    flips = draw(0, 2) == 0
    room = one%room + one%elements * 8
    wanted = one%made
    if (as_basic) wanted = one%basic
    call make_buffer(sent, one%room, in_objects, tag, draw(0, 2))
    call make_buffer(received, room, in_objects, 50, draw(0, 2))
    call make_buffer(other, 5000, in_objects, 90, draw(0, 2))
    if (rank == from) then
      select case (how)
      case (0)
        call MPI_Isend(sent%b, one%count, one%made, to, tag, MPI_COMM_WORLD, sending, ierror)
      case (1)
        call MPI_Issend(sent%b, one%count, one%made, to, tag, MPI_COMM_WORLD, sending, ierror)
      case (2)
        call MPI_Send_init(sent%b, one%count, one%made, to, tag, MPI_COMM_WORLD, sending, ierror)
        call MPI_Start(sending, ierror)
      case default
        if (from == to) then
          call MPI_Isend(sent%b, one%count, one%made, to, tag, MPI_COMM_WORLD, sending, ierror)
        else
          call MPI_Send(sent%b, one%count, one%made, to, tag, MPI_COMM_WORLD, ierror)
          sending = MPI_REQUEST_NULL
        end if
      end select
      call note_result(ierror)
    end if
    if (rank == to) then
      if (how == 3) then
        call MPI_Probe(source, asked, MPI_COMM_WORLD, state_of, ierror)
        call note_status(state_of, wanted)
      end if
      if (ends == 0) then
        call MPI_Recv(received%b, merge(one%elements, one%count, as_basic), wanted, source, asked, MPI_COMM_WORLD, &
                      state_of, ierror)
        call note_result(ierror)
      else
        call MPI_Irecv(received%b, merge(one%elements, one%count, as_basic), wanted, source, asked, MPI_COMM_WORLD, &
                       receiving, ierror)
        call note_result(ierror)
        if (flips) call flip(other)  ! (the receive's own bytes are MPI's now)
        select case (ends)
        case (1)
          call MPI_Wait(receiving, state_of, ierror)
        case (2)
          flag = .false.
          do while (.not. flag)
            call MPI_Test(receiving, flag, state_of, ierror)
          end do
        case default
          both = MPI_REQUEST_NULL
          both(1) = receiving
          if (rank == from .and. how /= 2) then
            both(2) = sending
            sending = MPI_REQUEST_NULL
          end if
          call MPI_Waitall(2, both, states, ierror)
          state_of = NTH(states, 1)
        end select
        call note_result(ierror)
      end if
      call note_status(state_of, wanted)
      call note_bytes(received)
      call note_bytes(other)
    end if
    if (rank == from) then
      call MPI_Wait(sending, state_of, ierror)
      if (how == 2) call MPI_Request_free(sending, ierror)
      call note_bytes(sent)
    end if
    call free_buffer(sent)
    call free_buffer(received)
    call free_buffer(other)
    call free_shape(one)
    ! The next message is not this one's.
    if (source == MPI_ANY_SOURCE) call MPI_Barrier(MPI_COMM_WORLD, ierror)
  end subroutine

  ! From each to the next one.
  subroutine exchange()
    type(shape) :: one
    type(buffer) :: sent, received
    integer :: next, last, ierror
    STATUS :: state_of
    call draw_shape(one)
    next = mod(rank + 1, ranks)
    last = mod(rank + ranks - 1, ranks)
    call make_buffer(sent, one%room, in_objects, rank, draw(0, 2))
    call make_buffer(received, one%room, in_objects, 60, draw(0, 2))
    if (draw(0, 1) == 0) then
      call MPI_Sendrecv(sent%b, one%count, one%made, next, 7, received%b, one%count, one%made, last, 7, MPI_COMM_WORLD, &
                        state_of, ierror)
    else
      call MPI_Sendrecv_replace(sent%b, one%count, one%made, next, 8, last, 8, MPI_COMM_WORLD, state_of, ierror)
    end if
    call note_result(ierror)
    call note_status(state_of, one%made)
    call note_bytes(sent)
    call note_bytes(received)
    call free_buffer(sent)
    call free_buffer(received)
    call free_shape(one)
  end subroutine

  subroutine collective()
    type(shape) :: one
    type(buffer) :: sent, received
    integer :: root, ierror
    integer(MPI_ADDRESS_KIND) :: lower, extent
    REQUEST :: request_of
    STATUS :: state_of
    call draw_shape(one)
    root = draw(0, ranks - 1)
    call MPI_Type_get_extent(one%made, lower, extent, ierror)
    call make_buffer(sent, one%room + int(extent) * one%count * ranks, in_objects, rank, draw(0, 2))
    call make_buffer(received, one%room + int(extent) * one%count * ranks, in_objects, 70, draw(0, 2))
    select case (draw(0, 6))
    case (0)
      call MPI_Bcast(sent%b, one%count, one%made, root, MPI_COMM_WORLD, ierror)
    case (1)
      call MPI_Gather(sent%b, one%count, one%made, received%b, one%count, one%made, root, MPI_COMM_WORLD, ierror)
    case (2)
      call MPI_Scatter(sent%b, one%count, one%made, received%b, one%count, one%made, root, MPI_COMM_WORLD, ierror)
    case (3)
      call MPI_Allgather(sent%b, one%count, one%made, received%b, one%count, one%made, MPI_COMM_WORLD, ierror)
    case (4)
      call MPI_Alltoall(sent%b, one%count, one%made, received%b, one%count, one%made, MPI_COMM_WORLD, ierror)
    case (5)
      call MPI_Ibcast(sent%b, one%count, one%made, root, MPI_COMM_WORLD, request_of, ierror)
      call MPI_Wait(request_of, state_of, ierror)
    case default
      call MPI_Allgather(MPI_IN_PLACE, 0, one%made, received%b, one%count, one%made, MPI_COMM_WORLD, ierror)
    end select
    call note_result(ierror)
    call note_bytes(sent)
    call note_bytes(received)
    call free_buffer(sent)
    call free_buffer(received)
    call free_shape(one)
  end subroutine

  subroutine reduction()
    type(buffer) :: sent, received
    integer :: count, ierror
    count = draw(0, 3000)
    call make_buffer(sent, 4 * count + 4, in_objects, rank, draw(0, 2))
    call make_buffer(received, 4 * count + 4, in_objects, 80, draw(0, 2))
    select case (draw(0, 3))
    case (0)
      call MPI_Allreduce(sent%b, received%b, count, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
    case (1)
      call MPI_Allreduce(MPI_IN_PLACE, received%b, count, MPI_INTEGER, MPI_BXOR, MPI_COMM_WORLD, ierror)
    case (2)
      call MPI_Reduce(sent%b, received%b, count, MPI_INTEGER, MPI_MAX, draw(0, ranks - 1), MPI_COMM_WORLD, ierror)
    case default
      call MPI_Scan(sent%b, received%b, count, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD, ierror)
    end select
    call note_result(ierror)
    call note_bytes(received)
    call free_buffer(sent)
    call free_buffer(received)
  end subroutine

  subroutine packing()
    type(shape) :: one
    type(buffer) :: strided, packed, back
    integer :: bytes, position, ierror
    integer(MPI_ADDRESS_KIND) :: long, at
    logical :: to_object
    call draw_shape(one)
    to_object = draw(0, 1) == 0
    to_object = in_objects .and. to_object
    call make_buffer(strided, one%room, in_objects, 3, draw(0, 2))
    call make_buffer(back, one%room, in_objects, 4, draw(0, 2))
    ! (MPICH 4.0.2 ends the process when it is asked for the external size of some structs.)
    if (draw(0, 1) == 0 .or. one%is_mixed) then
      call MPI_Pack_size(one%count, one%made, MPI_COMM_WORLD, bytes, ierror)
      call make_buffer(packed, bytes + 8, to_object, 5, draw(0, 2))
      position = 0
      call MPI_Pack(strided%b, one%count, one%made, packed%b, bytes + 8, position, MPI_COMM_WORLD, ierror)
      call note_result(ierror)
      call note(position)
      position = 0
      call MPI_Unpack(packed%b, bytes + 8, position, back%b, one%count, one%made, MPI_COMM_WORLD, ierror)
    else
      call MPI_Pack_external_size('external32', one%count, one%made, long, ierror)
      call make_buffer(packed, int(long) + 8, to_object, 5, draw(0, 2))
      at = 0
      call MPI_Pack_external('external32', strided%b, one%count, one%made, packed%b, long + 8, at, ierror)
      call note_result(ierror)
      call note(int(at))
      at = 0
      call MPI_Unpack_external('external32', packed%b, long + 8, at, back%b, one%count, one%made, ierror)
    end if
    call note_result(ierror)
    call note_bytes(back)
    call free_buffer(strided)
    call free_buffer(back)
    call free_buffer(packed)
    call free_shape(one)
  end subroutine

  subroutine run(seed, objects)
    integer, intent(in) :: seed
    logical, intent(in) :: objects
    integer :: i
    state = 1 + int(seed, 8) * 7919_8
    in_objects = objects
    book%count = 0
    book%failed = .false.
    do i = 1, 4
      select case (draw(0, 9))
      case (0, 1)
        call exchange()
      case (2)
        call collective()
      case (3)
        call reduction()
      case (4)
        call packing()
      case default
        call message()
      end select
    end do
  end subroutine

end module

program random_fortran
  use steps
  implicit none
  integer :: programs, first, i, ierror, compared, at
  character(32) :: word
  type(notebook) :: plain
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, ierror)
  call get_command_argument(1, word)
  read (word, *) programs
  call get_command_argument(2, word)
  read (word, *) first
  compared = 0
  do i = first, first + programs - 1
    call run(i, .false.)
    plain = book
    call run(i, .true.)
    ! What MPI itself does wrong in plain memory is not compared.
    if (plain%failed) cycle
    compared = compared + 1
    if (plain%count == book%count) then
      if (all(plain%words(1:plain%count) == book%words(1:book%count))) cycle
    end if
    do at = 1, min(plain%count, book%count)
      if (plain%words(at) /= book%words(at)) exit
    end do
    print *, 'FAILED: rank', rank, ': seed', i, ': note', at, 'of', plain%count, 'and', book%count, ':', &
      plain%words(at), book%words(at)
    flush (6)
    call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
  end do
  call MPI_Finalize(ierror)
  if (rank == 0) print '(i0, a, i0, a)', programs, ' Fortran programs, ', compared, ' compared: they agree'
end program
