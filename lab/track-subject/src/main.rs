//! A program that only touches memory, to measure the cost of tracking.
//!
//! Idea: its memory is a shared file mapping, like a hypervisor's guest memory, so that the tracker
//! can be loaded with `LD_PRELOAD`; but unlike an emulated guest it runs at the machine's own
//! speed. It prints the line `ready MAJOR MINOR INODE BYTES TID`, and then its count of touches for
//! each line of standard input; it exits at the end of the input.
//!
//! Limits: one thread touches memory; counts are multiples of [`BATCH`].

mod memory;
mod walk;

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Context;
use clap::Parser;

use ballast_track_subject::{Kind, Order, PAGE, Settings};
use memory::Memory;
use walk::Walk;

/// Touches between two updates of the count.
const BATCH: u64 = 256;

/// Touch memory and report the number of touches.
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  track-subject chase --mib 200
  track-subject random --mib 400 --size-mib 40 --size-mib 350 --part-touches 500000000
  track-subject trace --mib 128 --trace perl.u64")]
struct Args {
    /// The order in which memory is touched
    kind: Kind,
    /// How much memory there is, in MiB
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    mib: u64,
    /// For `random`: how much memory each part touches, in MiB [default: all]
    #[arg(long = "size-mib", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    sizes_mib: Vec<u64>,
    /// For `random`: fewest touches per part
    #[arg(long, value_name = "N", default_value_t = 0)]
    part_touches: u64,
    /// For `trace`: page numbers, 64 bits each, little endian
    #[arg(long, value_name = "FILE", required_if_eq("kind", "trace"))]
    trace: Option<PathBuf>,
    /// For the other kinds: seed of the order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let memory = Memory::new(args.mib << 20)?;
    let order = Order::new(&settings(&args)?)?;
    let mut walk = Walk::new(args.kind, order, &memory, args.seed);
    let (touches, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (tid_sender, tid_receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The receiver only disconnects when the program exits.
            let _ = tid_sender.send(rustix::thread::gettid().as_raw_nonzero());
            let mut sum = 0_u64;
            while !over.load(Ordering::Relaxed) {
                for _ in 0..BATCH {
                    sum = sum.wrapping_add(walk.touch(&memory));
                }
                touches.fetch_add(BATCH, Ordering::Relaxed);
            }
            // So that the compiler cannot omit a touch.
            std::hint::black_box(sum);
        });
        let served = tid_receiver.recv().map_err(anyhow::Error::from).and_then(|tid| {
            let (major, minor, inode) = memory.file_id()?;
            serve(&format!("ready {major} {minor} {inode} {} {tid}", memory.bytes()), &touches)
        });
        over.store(true, Ordering::Relaxed);
        served
    })
}

fn settings(args: &Args) -> anyhow::Result<Settings> {
    let pages = |mib: u64| u32::try_from((mib << 20) / PAGE).context("too much memory");
    let trace = match &args.trace {
        Some(path) => {
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?
        }
        None => Vec::new(),
    };
    let (words, _) = trace.as_chunks::<8>();
    Ok(Settings {
        kind: args.kind,
        pages: pages(args.mib)?,
        seed: args.seed,
        sizes: args.sizes_mib.iter().map(|&mib| pages(mib)).collect::<anyhow::Result<_>>()?,
        part_touches: args.part_touches,
        trace: words.iter().map(|word| u64::from_le_bytes(*word)).collect(),
    })
}

/// Prints `first`, then the count for each line of standard input.
fn serve(first: &str, touches: &AtomicU64) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{first}")?;
    for line in std::io::stdin().lock().lines() {
        line?;
        writeln!(out, "{}", touches.load(Ordering::Relaxed))?;
    }
    Ok(())
}
