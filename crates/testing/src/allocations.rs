//! An allocator that counts and hands everything on to the system's. A test binary that wants it makes it its
//! `#[global_allocator]`.

// An allocator is unsafe by its nature; nothing but counting is added.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The allocator. Growing counts as an allocation, with the old place and the new one held at once.
#[derive(Debug)]
pub struct Counting;

static OF_PROCESS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    if bytes > 0 {
        OF_PROCESS.fetch_add(1, Ordering::Relaxed);
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    }
    LIVE_BYTES.set(LIVE_BYTES.get() + bytes);
    PEAK_BYTES.set(PEAK_BYTES.get().max(LIVE_BYTES.get()));
}

// SAFETY: every call goes to the system's allocator with what was given; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Allocations, and the most bytes held at once, while `work` ran on this thread.
pub fn cost<T>(work: impl FnOnce() -> T) -> (usize, usize) {
    let (allocations, live) = (ALLOCATIONS.get(), LIVE_BYTES.get());
    PEAK_BYTES.set(live);
    drop(work());
    (ALLOCATIONS.get() - allocations, (PEAK_BYTES.get() - live) as usize)
}

/// Allocations of all threads since the process began.
pub fn of_process() -> usize {
    OF_PROCESS.load(Ordering::Relaxed)
}
