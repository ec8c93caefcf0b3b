//! An allocator that counts, thread by thread, so that a test can say how much a case took at most.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counted.
pub struct Counting;

fn add(bytes: isize) {
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        PEAK.with(|peak| peak.set(peak.get().max(now.get())));
    });
}

// An allocator cannot be written without `unsafe`; this one only counts what it hands on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// Bytes by which this thread's allocations during `work` exceeded those before it, at the peak.
pub fn peak_of(work: impl FnOnce()) -> usize {
    let before = NOW.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    work();
    usize::try_from(PEAK.with(Cell::get) - before).unwrap_or(0)
}
