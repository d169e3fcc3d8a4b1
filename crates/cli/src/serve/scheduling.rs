//! How the operating system shares the processor between this process and others.

use std::io;

/// The turn that is asked for, in nanoseconds; the shortest that Linux gives (its default is some
/// milliseconds). What a thread of the broker does before it waits again takes less.
const SLICE_NS: u64 = 100_000;

/// Asks for short turns, for the calling thread and for all threads that it starts from now on.
///
/// Linux lets a thread that wakes up run before another if its turn ends earlier (EEVDF; a slice of one's
/// own is heard since Linux 6.12). A batch is handed over between threads several times on its way, and
/// clients on the same machine that never wait, as librdkafka's while its requests are out, otherwise
/// finish their own turn at every one of these steps. It gives no larger share of the processor, needs no
/// privilege, and is left alone where somebody has chosen another policy. Older systems take no notice.
pub(super) fn ask_for_short_turns() {
    match set_slice() {
        Ok(true) => {}
        Ok(false) => tracing::debug!("another scheduling policy is set, and is left as it is"),
        Err(error) => tracing::debug!(%error, "no short turns on the processor"),
    }
}

/// The kernel's `struct sched_attr`, as of Linux 5.3 (`SCHED_ATTR_SIZE_VER1`); see sched_setattr(2).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
    util_min: u32,
    util_max: u32,
}

const ATTRIBUTES_BYTES: u32 = size_of::<Attributes>() as u32;

/// Sets the calling thread's slice and nothing else; false if its policy has none.
#[allow(unsafe_code)] // Neither rustix nor libc has a function for these two calls.
fn set_slice() -> io::Result<bool> {
    let mut attributes = Attributes::default();
    // SAFETY: the kernel writes at most the size that it is given, into a value of that size whose every
    // bit pattern is valid; 0 is the calling thread.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, ATTRIBUTES_BYTES, 0) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    if attributes.policy != libc::SCHED_OTHER as u32 {
        return Ok(false);
    }
    attributes.size = ATTRIBUTES_BYTES;
    attributes.runtime = SLICE_NS;
    // SAFETY: the kernel reads a value of the size that is in it.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(true),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel says of the calling thread: the slice in nanoseconds, where it tells it, and nice.
    fn told() -> (u64, i32) {
        let mut attributes = Attributes::default();
        // SAFETY: as in `set_slice`.
        #[allow(unsafe_code)]
        let got =
            unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, ATTRIBUTES_BYTES, 0) };
        assert_eq!(got, 0, "{}", io::Error::last_os_error());
        (attributes.runtime, attributes.nice)
    }

    #[test]
    fn threads_inherit_the_slice_and_keep_their_nice() {
        std::thread::spawn(|| {
            let (before, nice) = told();
            assert!(
                set_slice().expect("nothing that needs a privilege"),
                "tests run with the default policy"
            );
            let inherited = std::thread::spawn(told).join().expect("no panic");
            assert_eq!(inherited.1, nice);
            // A kernel that has no slices of one's own says 0, before and afterwards.
            assert!(inherited.0 == SLICE_NS || (before == 0 && inherited.0 == 0), "{inherited:?}");
        })
        .join()
        .expect("no panic");
    }
}
