//! Where the figures of a simulated machine come from.
//!
//! Idea: for each figure of its machine, by key, a scenario file says whether it was measured, is a
//! paper's, was fitted to a paper's result, or is assumed. A fitted figure names the results that
//! it was fitted to: agreement with those is no evidence for the model. The values stay where they
//! are in the file; [`Parameter::values`] looks them up.

use ballast_sim::{
    Balloon, Disk, GuestSpec, HostSpec, Kernel, Scenario, Sources, Swap, TrackerSpec,
};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// Longest text, in bytes.
const TEXT_BYTES_MAX: usize = 240;
/// The greatest number of parameters in one file.
pub const PARAMETERS_MAX: usize = 32;
/// The greatest number of places to which one is fitted.
const PLACES_MAX: usize = 8;
/// Key of the time that a host takes to clear a MiB before it hands it on.
const SCRUB: &str = "host.scrub_per_mib";
/// In a key, stands for every element of a list.
const EVERY: &str = "*";

/// Where figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Measured in the lab.
    Measured,
    /// Taken from a paper.
    Paper,
    /// Chosen so that the model reproduces a result of a paper.
    Fitted,
    /// Chosen because the model needs a value; nobody measured it.
    Assumed,
}

/// One figure of a scenario's machine, or several under one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Its key: parts separated by dots, with `*` for every element of a list.
    pub key: String,
    /// Where it comes from.
    pub origin: Origin,
    /// The reason for its value, in words.
    pub because: String,
    /// The places in papers that it was fitted to, as the `[[paper]]` tables name them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fitted_to: Vec<String>,
}

impl Parameter {
    /// Checks that texts are single lines, and that there are places if, and only if, the figure is
    /// fitted.
    ///
    /// # Errors
    /// The key that is wrong, and why.
    pub fn validate(&self) -> Result<(), (&'static str, String)> {
        for (key, text) in [("key", &self.key), ("because", &self.because)] {
            if text.is_empty() || text.len() > TEXT_BYTES_MAX || text.contains(char::is_control) {
                return Err((key, format!("expected one line of 1 to {TEXT_BYTES_MAX} bytes")));
            }
        }
        let is_fitted = self.origin == Origin::Fitted;
        let places = if is_fitted { 1..=PLACES_MAX } else { 0..=0 };
        if !places.contains(&self.fitted_to.len()) {
            let message = format!("expected 1 to {PLACES_MAX} places if it is fitted, else none");
            return Err(("fitted_to", message));
        }
        Ok(())
    }

    /// The values of the key in `file`, each once, in the order of the file; empty: there are none.
    pub fn values(&self, file: &Table) -> Vec<String> {
        let path: Vec<&str> = self.key.split('.').collect();
        let mut found = Vec::new();
        if let Some((first, rest)) = path.split_first()
            && let Some(value) = file.get(*first)
        {
            collect(value, rest, &mut found);
        }
        found
    }
}

/// The simulator's defaults for the figures that a scenario does not give, with their values.
pub fn defaults() -> Vec<(Parameter, String)> {
    let (kernel, balloon, sources) = (Kernel::default(), Balloon::default(), Sources::default());
    let tracker = TrackerSpec::default();
    let by = |origin: Origin| {
        move |key: &str, value: String, because: &str| (parameter(key, origin, because, &[]), value)
    };
    let [measured, assumed, paper] = [Origin::Measured, Origin::Assumed, Origin::Paper].map(by);
    let disk = |disk: Disk| {
        let mb = disk.bandwidth.get() / 1_000_000;
        format!("{:?} a request, {mb} MB/s", disk.latency)
    };
    let mb = |rate: ballast_model::Bytes| format!("{} MB/s", rate.get() / 1_000_000);
    let guests = "lab guests of 512 MiB and 1 GiB; see its source";
    vec![
        measured("kernel.uncounted", kernel.uncounted.to_string(), guests),
        measured("kernel.unreclaimable", kernel.unreclaimable.to_string(), guests),
        measured("kernel.watermark_low", kernel.watermark_low.to_string(), guests),
        measured("kernel.watermark_high", kernel.watermark_high.to_string(), guests),
        assumed("kernel.swappiness", kernel.swappiness.to_string(), "Linux's own default"),
        measured("balloon.inflate_idle", mb(balloon.inflate_idle), "170 to 390 MB/s in the lab"),
        measured(
            "balloon.inflate_pressed",
            mb(balloon.inflate_pressed),
            "80 to 96 MB/s in the lab",
        ),
        measured("balloon.deflate", mb(balloon.deflate), "768 MiB in 0.2 to 0.7 s in the lab"),
        measured(
            "sources.statistics_age",
            format!(
                "{:?}, {:?} pressed",
                sources.statistics_age_idle, sources.statistics_age_pressed
            ),
            "how old balloon statistics were in the lab",
        ),
        paper(
            "sources.tracker_interval",
            format!("{:?}", tracker.interval),
            "MEB §5.1 samples every 5 s",
        ),
        assumed(
            "sources.tracker_noise_permille",
            tracker.noise_permille.to_string(),
            "the simulated tracker is exact and costs nothing, which no real one is",
        ),
        paper("sources.tracker_miss_permille", tracker.miss_permille.to_string(), "MEB §3.1's ε"),
        measured("touch", format!("{:?}", GuestSpec::TOUCH_DEFAULT), "hits in the lab's guests"),
        assumed("fill", format!("{:?}", GuestSpec::FILL_DEFAULT), "clearing 4 KiB at 4 GB/s"),
        assumed(
            "give_back",
            format!("{:?}", GuestSpec::GIVE_BACK_DEFAULT),
            "freeing a page costs nothing beside filling one",
        ),
        assumed(
            "block",
            Scenario::BLOCK_DEFAULT.to_string(),
            "memory moves in and out of swap in such steps; single pages take 200 times as long",
        ),
        measured(
            "swap.readahead_pages",
            Swap::READAHEAD_PAGES_DEFAULT.to_string(),
            "Linux's vm.page-cluster of 3; 7.9 in the lab",
        ),
        assumed(
            "swap.write_pages",
            Swap::WRITE_PAGES.to_string(),
            "Linux's SWAP_CLUSTER_MAX: pages written with one request",
        ),
        assumed("swap, data", disk(Disk::SSD), "the disk where a scenario names none"),
        assumed("disk hdd", disk(Disk::HDD), "a seek and half a turn at 7,200/min"),
        assumed("disk ssd", disk(Disk::SSD), "a SATA drive"),
        assumed("disk nvme", disk(Disk::NVME), "a fast NVMe drive"),
        (
            parameter(
                SCRUB,
                Origin::Fitted,
                "between the 0.58 and 0.44 ms per MiB that Global's slow-downs of 1.5 and 2 come to",
                &["Global Fig. 10"],
            ),
            format!("{:?}", HostSpec::SCRUB_PER_MIB_DEFAULT),
        ),
    ]
}

fn parameter(key: &str, origin: Origin, because: &str, fitted_to: &[&str]) -> Parameter {
    Parameter {
        key: key.to_owned(),
        origin,
        because: because.to_owned(),
        fitted_to: fitted_to.iter().map(|&place| place.to_owned()).collect(),
    }
}

/// Adds every value below `value` at `path` to `found`.
fn collect(value: &Value, path: &[&str], found: &mut Vec<String>) {
    let Some((first, rest)) = path.split_first() else {
        let text = match value {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        if !found.contains(&text) {
            found.push(text);
        }
        return;
    };
    match value {
        Value::Array(list) if *first == EVERY => {
            list.iter().for_each(|element| collect(element, rest, found));
        }
        Value::Table(table) => {
            table.get(*first).into_iter().for_each(|below| collect(below, rest, found));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(key: &str) -> Parameter {
        super::parameter(key, Origin::Assumed, "something has to be there", &[])
    }

    #[test]
    fn every_default_is_sound_and_there_once() {
        let all = defaults();
        let keys: std::collections::BTreeSet<&str> =
            all.iter().map(|(parameter, _)| parameter.key.as_str()).collect();
        assert_eq!(keys.len(), all.len());
        for (parameter, value) in &all {
            assert_eq!(parameter.validate(), Ok(()), "{}", parameter.key);
            assert!(!value.is_empty(), "{}", parameter.key);
        }
    }

    #[test]
    fn values_are_looked_up_where_they_are() {
        let file: Table = "[defaults]\ntouch = \"6us\"\nswap = { speed = \"hdd\" }\n\
                           [[guests]]\nfill = 1\n[[guests]]\nfill = 2\n[[guests]]\nfill = 1\n"
            .parse()
            .unwrap();
        let values = |key: &str| parameter(key).values(&file);
        assert_eq!(values("defaults.touch"), ["6us"]);
        assert_eq!(values("defaults.swap.speed"), ["hdd"]);
        assert_eq!(values("guests.*.fill"), ["1", "2"]);
        for key in ["defaults.fill", "guests.fill", "defaults.*", "touch", ""] {
            assert!(values(key).is_empty(), "{key}");
        }
    }

    #[test]
    fn only_what_is_fitted_names_places() {
        let places = |origin, fitted_to: &[&str]| {
            let fitted_to = fitted_to.iter().map(|&it| it.to_owned()).collect();
            Parameter { origin, fitted_to, ..parameter("k") }.validate().is_ok()
        };
        assert!(places(Origin::Fitted, &["MEB Table V"]) && places(Origin::Paper, &[]));
        assert!(!places(Origin::Fitted, &[]) && !places(Origin::Measured, &["MEB Table V"]));
        assert_eq!(parameter("").validate().unwrap_err().0, "key");
        let long = Parameter { because: "x".repeat(241), ..parameter("k") };
        assert_eq!(long.validate().unwrap_err().0, "because");
    }
}
