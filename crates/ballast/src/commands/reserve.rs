//! `ballast reserve`: make room for a guest that is about to start.
//!
//! Idea: from the request on, the daemon keeps freed memory for the guest; this command waits until
//! all of it is free. It fails if the daemon ends meanwhile; the next daemon keeps the reservation.

use std::time::{Duration, Instant};

use ballast_api::{Client, GuestView, Reserve, StatusReply};
use ballast_model::{Bytes, GuestId};
use serde::Serialize;

use ballast_report::Output;
use ballast_report::format::{size, span};

use super::{Connection, message};

/// Time between two checks whether the memory is free.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// The name of a reservation for no particular guest.
const UNNAMED_GUEST: &str = "reservation";

/// Make room for a guest that is about to start.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast reserve 2GiB --for web-3 && virsh start web-3
  ballast reserve 512MiB --wait 2m --lasts 1h
  ballast reserve --release --for web-3

Other guests shrink, but not below their floors, until SIZE is free on the host and in the budget.
No other guest is granted that memory until the guest NAME appears or the reservation ends. A second
reservation for the same name replaces the first.

Exit status: 0 all of SIZE is free; 1 some is still lacking after --wait (the reservation stays), or
the daemon refuses; 2 wrong usage.

JSON: an object with guest, size_bytes, free_bytes, is_ready, is_taken_up (the guest has appeared),
waited_ms, ends_in_ms (it and free_bytes are null if there is no such reservation) and, unless
is_ready, surpluses: a list of guest, bytes (held above its floor) and change (what it is doing),
left out if it is empty. With --release, an object with api_version and message.")]
pub struct Args {
    /// How much memory, such as 2GiB
    #[arg(value_name = "SIZE", required_unless_present = "release", conflicts_with = "release")]
    size: Option<Bytes>,
    /// The guest that is about to start
    #[arg(long = "for", value_name = "NAME", default_value = UNNAMED_GUEST)]
    guest: GuestId,
    /// How long to wait until the memory is free; 0s: do not wait
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    wait: Duration,
    /// How long to keep the reservation if the guest does not appear, at most 24h
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    lasts: Duration,
    /// End the reservation instead of making one
    #[arg(long)]
    release: bool,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
}

/// The outcome, as printed.
#[derive(Debug, Serialize)]
struct ReservationOutcome {
    guest: String,
    size_bytes: u64,
    /// `None`: status shows no such reservation.
    free_bytes: Option<u64>,
    is_ready: bool,
    is_taken_up: bool,
    waited_ms: u64,
    /// `None`: likewise.
    ends_in_ms: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    surpluses: Vec<Surplus>,
}

/// A guest that holds more than its floor.
#[derive(Debug, Serialize)]
struct Surplus {
    guest: String,
    bytes: u64,
    change: String,
}

/// Asks the daemon, waits, and prints the outcome.
///
/// # Errors
/// The daemon does not answer or refuses, not all of the memory is free in time, or standard output
/// cannot be written.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let client = args.connection.client()?;
    let Some(wanted) = args.size else {
        let reply = client.unreserve(&args.guest).await?;
        return args.output.print(&reply, message);
    };
    let reserved = wait(&client, &args, wanted).await?;
    args.output.print(&reserved, |reserved, _| render(reserved))?;
    anyhow::ensure!(reserved.is_ready || reserved.is_taken_up, "{}", failure_text(&reserved));
    Ok(())
}

/// Reserves, and waits until the memory is free or the time to wait is over.
async fn wait(client: &Client, args: &Args, wanted: Bytes) -> anyhow::Result<ReservationOutcome> {
    let reserve = Reserve { size_bytes: wanted.get(), lasts_s: args.lasts.as_secs() };
    let began = Instant::now();
    client.reserve(&args.guest, &reserve).await?;
    loop {
        let status = client.status().await?;
        let name = args.guest.as_str();
        let is_taken_up = status.guests.iter().any(|guest| guest.guest == name);
        let found = status.reservations.iter().find(|it| it.guest == name);
        // Until the next tick this may still be an earlier reservation of another size.
        let found = found.filter(|it| it.size_bytes == wanted.get());
        let is_ready = found.is_some_and(|it| it.free_bytes >= it.size_bytes);
        if is_ready || is_taken_up || began.elapsed() >= args.wait {
            let waited_ms = began.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
            return Ok(ReservationOutcome {
                guest: name.to_owned(),
                size_bytes: wanted.get(),
                free_bytes: found.map(|it| it.free_bytes),
                is_ready,
                is_taken_up,
                waited_ms,
                ends_in_ms: found.map(|it| it.ends_in_ms),
                surpluses: if is_ready { Vec::new() } else { surpluses(&status) },
            });
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

/// Guests that hold more than their floors, the largest surplus first.
fn surpluses(status: &StatusReply) -> Vec<Surplus> {
    let surplus = |guest: &GuestView| {
        let bytes = guest.allocation_bytes?.checked_sub(guest.floor_bytes?)?;
        let change = guest.change.as_ref().map_or(String::new(), |change| change.text.clone());
        (bytes > 0).then(|| Surplus { guest: guest.guest.clone(), bytes, change })
    };
    let mut surpluses: Vec<Surplus> = status.guests.iter().filter_map(surplus).collect();
    surpluses.sort_unstable_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.guest.cmp(&b.guest)));
    surpluses
}

fn render(reserved: &ReservationOutcome) -> String {
    let ReservationOutcome { guest, is_ready, is_taken_up, .. } = reserved;
    let all = size(reserved.size_bytes);
    match (is_taken_up, is_ready) {
        (true, _) => format!("`{guest}` is here: its reservation has ended\n"),
        (false, true) => format!(
            "{all} are free for `{guest}` after {}, for {} at most\n",
            span(reserved.waited_ms),
            span(reserved.ends_in_ms.unwrap_or(0))
        ),
        (false, false) => String::new(),
    }
}

/// Why the command fails.
fn failure_text(reserved: &ReservationOutcome) -> String {
    let ReservationOutcome { guest, size_bytes, waited_ms, .. } = reserved;
    let free_bytes = reserved.free_bytes.unwrap_or(0);
    let mut text = format!(
        "of the {} for `{guest}`, {} are free after {} and {} are lacking; the reservation stays \
         (`ballast reserve --release --for {guest}` ends it)",
        size(*size_bytes),
        size(free_bytes),
        span(*waited_ms),
        size(size_bytes.saturating_sub(free_bytes)),
    );
    for Surplus { guest, bytes, change } in &reserved.surpluses {
        text.push_str(&format!("\n{guest} holds {} above its floor: {change}", size(*bytes)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserved(free_bytes: u64, is_taken_up: bool) -> ReservationOutcome {
        ReservationOutcome {
            guest: "web".to_owned(),
            size_bytes: 1 << 30,
            free_bytes: Some(free_bytes),
            is_ready: free_bytes == 1 << 30,
            is_taken_up,
            waited_ms: 2_300,
            ends_in_ms: Some(600_000),
            surpluses: vec![Surplus {
                guest: "db".to_owned(),
                bytes: 600 << 20,
                change: "shrink to 1GiB".to_owned(),
            }],
        }
    }

    #[test]
    fn what_is_free_and_what_is_lacking_is_said() {
        let ready = render(&reserved(1 << 30, false));
        assert_eq!(ready, "1GiB are free for `web` after 2.3s, for 10m 0s at most\n");
        assert!(render(&reserved(0, true)).contains("is here"));
        let why = failure_text(&reserved(1 << 29, false));
        for part in ["512MiB are lacking", "--release --for web", "db holds 600MiB above its floor"]
        {
            assert!(why.contains(part), "{why}");
        }
    }
}
