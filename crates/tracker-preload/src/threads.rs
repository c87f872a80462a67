//! The tracker's threads inside the hypervisor's process.
//!
//! They block all signals, which are meant for the hypervisor's threads.
//! Source: pthread_sigmask(3), clock_gettime(2); the clock of a thread by its number is
//! `CPUCLOCK_SCHED | CPUCLOCK_PERTHREAD` of the kernel's `posix-timers.h`.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread that receives no signals.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // SAFETY: a signal set is plain data, which sigfillset fills.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above; it is read only after pthread_sigmask has filled it.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: both sets outlive the call. The new thread inherits the mask.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    let spawned = Builder::new().name(name.to_owned()).spawn(run);
    // SAFETY: restores the previous set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    spawned
}

/// Processor time of a thread of this process, in nanoseconds; 0 if it is gone.
pub(crate) fn time_ns(tid: u32) -> u64 {
    const CPUCLOCK_SCHED_PERTHREAD: libc::clockid_t = 6;
    let clock = (!(tid as libc::clockid_t) << 3) | CPUCLOCK_SCHED_PERTHREAD;
    if tid == 0 { 0 } else { clock_ns(clock) }
}

/// Processor time of the calling thread, in nanoseconds.
pub(crate) fn own_time_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call; an unknown clock is an error and leaves it 0.
    unsafe { libc::clock_gettime(clock, &mut time) };
    u64::try_from(i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_block_signals_and_their_time_is_readable() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = spawn("test", move || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let mut sum = 0_u64;
            while own_time_ns() < 20_000_000 {
                sum = std::hint::black_box(sum + 1);
            }
            let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            let (own, by_number) = (own_time_ns(), time_ns(tid));
            sender.send((status, own, by_number)).unwrap();
        });
        thread.unwrap().join().unwrap();
        let (status, own, by_number) = receiver.recv().unwrap();
        assert!(by_number >= own && by_number < own * 2, "{own} {by_number}");
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
        assert_ne!(blocked & (1 << (libc::SIGTERM - 1)), 0);
        // The highest thread number is hardly ever in use.
        assert_eq!((time_ns(0), time_ns((1 << 22) - 1)), (0, 0));
    }
}
