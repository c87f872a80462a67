//! The plugin as QEMU sees it.
//!
//! Idea: at the translation of each block a call is placed at every load and store. It looks whether the
//! page was recorded in this interval already, in a table of its processor's own; if not, the page goes to
//! one recorder under a lock. A call at each instruction that changes what is mapped empties the table. A
//! thread tells the time by counting intervals, so that no access asks a clock.
//!
//! Source: QEMU 7.2, `include/qemu/qemu-plugin.h`; Debian ships no header, so it is declared here.
//! Limits: an interval's end is as sharp as a sleeping thread wakes, a few milliseconds.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::known::{Known, VCPUS, flushes};
use crate::options::Options;
use crate::output::{self, Grid, Queue};
use crate::recorder::Recorder;

/// 4 KiB pages.
const PAGE_SHIFT: u32 = 12;

/// The API version this was written for, which QEMU looks for.
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

/// What is recorded, from the plugin's start to QEMU's end.
struct Running {
    recorder: Recorder<Queue>,
    writer: JoinHandle<io::Result<()>>,
}

static RUNNING: OnceLock<Mutex<Option<Running>>> = OnceLock::new();
/// Number of the current interval.
static INTERVAL: AtomicU32 = AtomicU32::new(0);
/// What each processor has touched in it.
static KNOWN: [Known; VCPUS] = [const { Known::new() }; VCPUS];
/// Whether pages are wanted in order.
static IS_TRACED: AtomicBool = AtomicBool::new(false);
/// Of a trace, the processor of the latest access: what another did in between is no repetition.
static LATEST: AtomicU32 = AtomicU32::new(u32::MAX);

/// QEMU's first call.
///
/// # Safety
/// QEMU passes `argc` words, each a string that ends with a zero byte.
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
    // SAFETY: `id` is QEMU's, and the functions live as long as this library, which QEMU never unloads.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        qemu_plugin_register_atexit_cb(id, exiting, std::ptr::null_mut());
    }
    0
}

/// Opens the files, starts the writer and the clock.
fn start(words: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse(words.iter().map(String::as_str))?;
    let now = clock_gettime(ClockId::Monotonic);
    let origin_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let grid = Grid { origin_ns, interval_ns: options.interval_ms * 1_000_000 };
    let (queue, writer) = output::start(&options, grid)?;
    let recorder = Recorder::new(queue, options.trace.is_some());
    IS_TRACED.store(options.trace.is_some(), Ordering::Relaxed);
    let running = Mutex::new(Some(Running { recorder, writer }));
    RUNNING.set(running).map_err(|_| "loaded twice into one guest")?;
    std::thread::Builder::new().name("truth-clock".to_owned()).spawn(move || tick(grid))?;
    Ok(())
}

/// Counts intervals for as long as QEMU lives.
fn tick(grid: Grid) {
    loop {
        let now = clock_gettime(ClockId::Monotonic);
        let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let since_ns = now_ns.saturating_sub(grid.origin_ns);
        let interval = since_ns / grid.interval_ns;
        INTERVAL.store(u32::try_from(interval).unwrap_or(u32::MAX), Ordering::Relaxed);
        let left_ns = (interval + 1) * grid.interval_ns - since_ns;
        std::thread::sleep(Duration::from_nanos(left_ns));
    }
}

/// Places calls at the instructions of a block that QEMU has just translated.
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

/// What is mapped where is about to change.
unsafe extern "C" fn flushing(vcpu: c_uint, _data: *mut c_void) {
    if let Some(known) = KNOWN.get(vcpu as usize) {
        known.flush();
    }
}

/// A load or store.
unsafe extern "C" fn accessed(vcpu: c_uint, info: u32, address: u64, _data: *mut c_void) {
    let (page, interval) = (address >> PAGE_SHIFT, INTERVAL.load(Ordering::Relaxed));
    let is_traced = IS_TRACED.load(Ordering::Relaxed);
    let known = KNOWN.get(vcpu as usize);
    let is_alone = !is_traced || LATEST.load(Ordering::Relaxed) == vcpu;
    if is_alone && known.is_some_and(|known| known.has(page, interval, !is_traced)) {
        return;
    }
    // SAFETY: both arguments are QEMU's own for this access; a null is checked before it is asked.
    let physical = unsafe {
        let hardware = qemu_plugin_get_hwaddr(info, address);
        if hardware.is_null() || qemu_plugin_hwaddr_is_io(hardware) {
            return;
        }
        qemu_plugin_hwaddr_phys_addr(hardware)
    };
    let Some(running) = RUNNING.get() else { return };
    let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(running) = running.as_mut() else { return };
    running.recorder.count(known.map_or(0, Known::take_accesses));
    running.recorder.access(physical >> PAGE_SHIFT, interval);
    if is_traced {
        LATEST.store(vcpu, Ordering::Relaxed);
    }
    if let Some(known) = known {
        known.add(page, interval);
    }
}

/// Completes the files; the interval that is running is left out.
unsafe extern "C" fn exiting(_id: u64, _data: *mut c_void) {
    let Some(running) = RUNNING.get() else { return };
    let ended = running.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(Running { mut recorder, writer }) = ended else { return };
    KNOWN.iter().for_each(|known| recorder.count(known.take_accesses()));
    recorder.advance(INTERVAL.load(Ordering::Relaxed));
    drop(recorder);
    match writer.join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => eprintln!("truth plugin: error: cannot write: {error}"),
        Err(_) => eprintln!("truth plugin: error: the writer panicked"),
    }
}
