//! The plugin's interface to QEMU.
//!
//! Idea: when QEMU translates a block, the plugin adds a callback to every load and store. It
//! checks in a per-processor table whether the page was already recorded in this interval; if not,
//! the page goes to one recorder under a lock. A callback at each instruction that flushes a TLB
//! flushes the table. A thread counts intervals, so that no access reads a clock.
//!
//! Source: QEMU 7.2, `include/qemu/qemu-plugin.h`; Debian ships no header, so it is declared here.
//! Limits: an interval's end is accurate to a few milliseconds, the wake-up time of a thread.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::options::Options;
use crate::output::{self, IntervalTimes, Queue};
use crate::recent_pages::{RecentPages, VCPUS, flushes};
use crate::recorder::Recorder;

/// Pages of 4 KiB.
const PAGE_SHIFT: u32 = 12;

/// The plugin API's version, which QEMU checks.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU's name")]
pub(crate) static qemu_plugin_version: c_int = 1;

/// `enum qemu_plugin_cb_flags`: the callback reads no registers.
const CB_NO_REGS: c_int = 0;
/// `enum qemu_plugin_mem_rw`: loads and stores.
const MEM_RW: c_int = 3;

/// `struct qemu_plugin_tb`, a block of translated instructions.
#[repr(C)]
struct Block {
    _opaque: [u8; 0],
}

/// `struct qemu_plugin_insn`.
#[repr(C)]
struct Instruction {
    _opaque: [u8; 0],
}

/// `struct qemu_plugin_hwaddr`.
#[repr(C)]
struct HardwareAddress {
    _opaque: [u8; 0],
}

type TranslationCallback = unsafe extern "C" fn(id: u64, block: *mut Block);
type MemoryCallback =
    unsafe extern "C" fn(vcpu: c_uint, info: u32, address: u64, data: *mut c_void);
type ExecutionCallback = unsafe extern "C" fn(vcpu: c_uint, data: *mut c_void);
type UserCallback = unsafe extern "C" fn(id: u64, data: *mut c_void);

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, callback: TranslationCallback);
    fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        callback: MemoryCallback,
        flags: c_int,
        rw: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const u8;
    fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        callback: ExecutionCallback,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_get_hwaddr(info: u32, address: u64) -> *mut HardwareAddress;
    fn qemu_plugin_hwaddr_is_io(address: *const HardwareAddress) -> bool;
    fn qemu_plugin_hwaddr_phys_addr(address: *const HardwareAddress) -> u64;
    fn qemu_plugin_register_atexit_cb(id: u64, callback: UserCallback, data: *mut c_void);
}

/// The recorder and its writer, from the plugin's start to QEMU's exit.
struct OpenRecording {
    recorder: Recorder<Queue>,
    writer: JoinHandle<io::Result<()>>,
}

static RECORDING: OnceLock<Mutex<Option<OpenRecording>>> = OnceLock::new();
/// Number of the current interval.
static INTERVAL: AtomicU32 = AtomicU32::new(0);
/// The pages that each processor has touched in it.
static RECENT: [RecentPages; VCPUS] = [const { RecentPages::new() }; VCPUS];
/// Whether a trace is written.
static IS_TRACED: AtomicBool = AtomicBool::new(false);
/// With a trace, the processor of the latest access: an access after another processor's is no
/// repetition.
static LATEST: AtomicU32 = AtomicU32::new(u32::MAX);

/// QEMU calls this first.
///
/// # Safety
/// QEMU passes `argc` strings, each terminated by a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    _info: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    let words = (0..usize::try_from(argc).unwrap_or(0)).map(|place| {
        // SAFETY: by the contract of this function.
        let word = unsafe { CStr::from_ptr(*argv.add(place)) };
        word.to_string_lossy().into_owned()
    });
    let words: Vec<String> = words.collect();
    if let Err(error) = start(&words) {
        eprintln!("truth plugin: error: {error}");
        return 1;
    }
    // SAFETY: `id` is QEMU's, and the functions live as long as this library, which QEMU never
    // unloads.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        qemu_plugin_register_atexit_cb(id, exiting, std::ptr::null_mut());
    }
    0
}

/// Opens the files and starts the writer and the clock.
fn start(words: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse(words.iter().map(String::as_str))?;
    let times = IntervalTimes { origin_ns: now_ns(), interval_ns: options.interval_ms * 1_000_000 };
    let (queue, writer) = output::start(&options, times)?;
    let recorder = Recorder::new(queue, options.trace.is_some());
    IS_TRACED.store(options.trace.is_some(), Ordering::Relaxed);
    let recording = Mutex::new(Some(OpenRecording { recorder, writer }));
    RECORDING.set(recording).map_err(|_| "loaded twice into one guest")?;
    std::thread::Builder::new().name("truth-clock".to_owned()).spawn(move || tick(times))?;
    Ok(())
}

/// The host's monotonic clock.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Counts intervals until QEMU exits.
fn tick(times: IntervalTimes) {
    loop {
        let since_ns = now_ns().saturating_sub(times.origin_ns);
        let interval = since_ns / times.interval_ns;
        INTERVAL.store(u32::try_from(interval).unwrap_or(u32::MAX), Ordering::Relaxed);
        let left_ns = (interval + 1) * times.interval_ns - since_ns;
        std::thread::sleep(Duration::from_nanos(left_ns));
    }
}

/// Adds callbacks to the instructions of a block that QEMU has just translated.
unsafe extern "C" fn translated(_id: u64, block: *mut Block) {
    let none = std::ptr::null_mut();
    // SAFETY: QEMU's block is valid during this call, indices are below its own count, and an
    // instruction's bytes are as many as it says.
    unsafe {
        for index in 0..qemu_plugin_tb_n_insns(block) {
            let instruction = qemu_plugin_tb_get_insn(block, index);
            let size = qemu_plugin_insn_size(instruction);
            if flushes(std::slice::from_raw_parts(qemu_plugin_insn_data(instruction), size)) {
                qemu_plugin_register_vcpu_insn_exec_cb(instruction, flushing, CB_NO_REGS, none);
            }
            qemu_plugin_register_vcpu_mem_cb(instruction, accessed, CB_NO_REGS, MEM_RW, none);
        }
    }
}

/// Called before an instruction that flushes a TLB.
unsafe extern "C" fn flushing(vcpu: c_uint, _data: *mut c_void) {
    if let Some(recent) = RECENT.get(vcpu as usize) {
        recent.flush();
    }
}

/// Called at a load or store.
unsafe extern "C" fn accessed(vcpu: c_uint, info: u32, address: u64, _data: *mut c_void) {
    let (page, interval) = (address >> PAGE_SHIFT, INTERVAL.load(Ordering::Relaxed));
    let is_traced = IS_TRACED.load(Ordering::Relaxed);
    let recent = RECENT.get(vcpu as usize);
    let is_alone = !is_traced || LATEST.load(Ordering::Relaxed) == vcpu;
    if is_alone && recent.is_some_and(|recent| recent.has(page, interval, !is_traced)) {
        return;
    }
    // SAFETY: both arguments are QEMU's own for this access; a null is checked before it is used.
    let physical = unsafe {
        let hardware = qemu_plugin_get_hwaddr(info, address);
        if hardware.is_null() || qemu_plugin_hwaddr_is_io(hardware) {
            return;
        }
        qemu_plugin_hwaddr_phys_addr(hardware)
    };
    let Some(recording) = RECORDING.get() else { return };
    let mut recording = recording.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(recording) = recording.as_mut() else { return };
    recording.recorder.count(recent.map_or(0, RecentPages::take_accesses));
    recording.recorder.access(physical >> PAGE_SHIFT, interval);
    if is_traced {
        LATEST.store(vcpu, Ordering::Relaxed);
    }
    if let Some(recent) = recent {
        recent.add(page, interval);
    }
}

/// Called at QEMU's exit. Completes the files; the current interval is omitted.
unsafe extern "C" fn exiting(_id: u64, _data: *mut c_void) {
    let Some(recording) = RECORDING.get() else { return };
    let ended = recording.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(OpenRecording { mut recorder, writer }) = ended else { return };
    RECENT.iter().for_each(|recent| recorder.count(recent.take_accesses()));
    recorder.advance(INTERVAL.load(Ordering::Relaxed));
    drop(recorder);
    match writer.join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => eprintln!("truth plugin: error: cannot write: {error}"),
        Err(_) => eprintln!("truth plugin: error: the writer panicked"),
    }
}
