//! `ballast fleet explain`: one guest in the fleet.

use anyhow::bail;
use ballast_fleet::{GuestRecord, HostRecord};
use ballast_fleet_proto::FleetView;
use ballast_model::{Bytes, GuestId, Timestamp};
use ballast_report::format::{size, wrapped};
use serde::Serialize;

use super::{GuestArgs, plan, read};

/// A guest in the fleet, on each host that has one of its name.
#[derive(Debug, Serialize)]
pub struct FleetExplanation {
    /// Its name.
    pub guest: String,
    /// Each host that has it.
    pub places: Vec<GuestOnHost>,
}

/// A guest on one host. Sizes are in bytes.
#[derive(Debug, Serialize)]
pub struct GuestOnHost {
    /// The host.
    pub host: String,
    /// Its allocation.
    pub allocation_bytes: u64,
    /// Its floor.
    pub floor_bytes: u64,
    /// Its demand.
    pub demand_bytes: u64,
    /// Misses a second at its allocation, if known.
    pub misses_per_s: Option<u64>,
    /// Why it must stay, if it must.
    pub stays: Option<String>,
    /// The budget of its host.
    pub host_budget_bytes: u64,
    /// The sum of all guests' floors there.
    pub host_floors_bytes: u64,
    /// The sum of all guests' demands there.
    pub host_demand_bytes: u64,
    /// What the plan says of it, in words.
    pub planned: String,
}

/// Prints what is known of a guest.
///
/// # Errors
/// No host has it, or the coordinator does not answer.
pub async fn run(args: GuestArgs) -> anyhow::Result<()> {
    let config = args.fleet.config.load()?;
    let view = read(&config.etcd()?, &config).await?;
    args.fleet.output.print(&explanation(&view, &args.guest)?, render)
}

/// What is known of `guest`.
///
/// # Errors
/// No host has it.
pub fn explanation(view: &FleetView, guest: &GuestId) -> anyhow::Result<FleetExplanation> {
    let (snapshot, _) = view.snapshot(Timestamp::ZERO);
    let mut places = Vec::new();
    for host in snapshot.hosts() {
        for it in host.guests.iter().filter(|it| it.id == *guest) {
            places.push(place(view, host, it));
        }
    }
    if places.is_empty() {
        let hosts = snapshot.hosts().len();
        bail!("no guest {guest} on {hosts} hosts; `ballast fleet status` lists them");
    }
    Ok(FleetExplanation { guest: guest.to_string(), places })
}

fn place(view: &FleetView, host: &HostRecord, guest: &GuestRecord) -> GuestOnHost {
    let floors: Bytes = host.guests.iter().map(|it| it.floor).sum();
    let demand: Bytes = host.guests.iter().map(|it| it.demand).sum();
    let misses = guest.curve.as_ref().map(|curve| curve.misses_per_s(guest.allocation));
    GuestOnHost {
        host: host.id.to_string(),
        allocation_bytes: guest.allocation.get(),
        floor_bytes: guest.floor.get(),
        demand_bytes: guest.demand.get(),
        misses_per_s: misses,
        stays: guest.pinned_by.map(|by| by.to_string()),
        host_budget_bytes: host.budget.get(),
        host_floors_bytes: floors.get(),
        host_demand_bytes: demand.get(),
        planned: planned(view, host, guest),
    }
}

/// What the plan says of a guest, in words.
fn planned(view: &FleetView, host: &HostRecord, guest: &GuestRecord) -> String {
    if let Some(entry) = view.move_of(&guest.id) {
        return match &entry.record {
            Ok(record) => format!("under way: it {}", record.in_words()),
            Err(why) => format!("under way, but the record of its move cannot be read: {why}"),
        };
    }
    let shown = match plan::shown(view) {
        Ok(shown) => shown,
        Err(error) => return error.to_string(),
    };
    if let Some(why) = &shown.void {
        return format!("the plan is void: {why}");
    }
    let plan = &shown.plan;
    let (name, at) = (guest.id.as_str(), host.id.as_str());
    for (list, when) in [(&plan.migrations, "move now"), (&plan.waiting, "move later")] {
        if let Some(it) = list.iter().find(|it| it.guest == name && it.from == at) {
            return format!("{when}: {}", it.text);
        }
    }
    if let Some(need) = plan.unmet.iter().find(|need| need.host == at) {
        return format!("it stays, though its host needs relief: {}", need.text);
    }
    if plan.migrations.iter().chain(&plan.waiting).any(|it| it.from == at) {
        return "it stays: it is enough that other guests leave its host".to_owned();
    }
    "it stays: its host has enough for floors and objectives, and no move is worth it".to_owned()
}

/// The explanation as text.
pub fn render(explanation: &FleetExplanation, width: Option<u16>) -> String {
    let mut text = String::new();
    for place in &explanation.places {
        text += &format!(
            "{} on {}: holds {}, floor {}, should have {}",
            explanation.guest,
            place.host,
            size(place.allocation_bytes),
            size(place.floor_bytes),
            size(place.demand_bytes)
        );
        if let Some(misses) = place.misses_per_s {
            text += &format!(", misses {misses} pages a second");
        }
        text += &format!(
            "\n  its host: budget {}, floors {}, all guests should have {}\n",
            size(place.host_budget_bytes),
            size(place.host_floors_bytes),
            size(place.host_demand_bytes)
        );
        if let Some(stays) = &place.stays {
            text += &format!("  {stays}\n");
        }
        text += &format!("  {}\n", place.planned);
    }
    wrapped(&text, width, 4)
}
