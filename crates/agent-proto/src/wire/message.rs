//! Messages, one a frame.
//!
//! Idea: the host says hello until the guest's agent answers; then the agent reports and asks, and the
//! host answers and orders. Every message of an agent carries a number that grows by one for as long
//! as the agent runs, and the guest's uptime, so that what was lost, a new agent and a new boot are
//! seen.
//!
//! What either side does not know it passes over: an unknown field, and an unknown type, which reads
//! as `Unknown`. So fields and types can be added within a version; a new version is for a change of
//! meaning. Each hello says the versions its sender speaks, and the highest common one is spoken.
//!
//! Limits: the constants, checked by [`decode`] and [`encode`] alike. Pure.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::frame::{self, FrameError};
use crate::statistics::{AGE_GROUPS_MAX, Ages, NUMBER_MAX, Statistics};

/// Newest version of messages that this side speaks.
pub const VERSION: u32 = 1;
/// Oldest version of messages that this side speaks.
pub const VERSION_OLDEST: u32 = 1;
/// Longest text, in bytes.
pub const TEXT_LEN_MAX: usize = 256;
/// Longest name of a capability or a shrinker, in bytes.
pub const NAME_LEN_MAX: usize = 64;
/// Most capabilities, and most shrinkers.
pub const NAMES_MAX: usize = 32;

/// What an agent can do beyond the least.
pub mod capability {
    /// Sends statistics.
    pub const STATISTICS: &str = "statistics";
    /// Its statistics have the kernel's pressure figures.
    pub const PRESSURE: &str = "pressure";
    /// Its statistics have watermarks.
    pub const WATERMARKS: &str = "watermarks";
    /// Asks for memory, offers it, and cries for help.
    pub const REQUESTS: &str = "requests";
    /// Sends how long memory has not been used.
    pub const AGES: &str = "ages";
    /// Makes programs shrink.
    pub const SHRINK: &str = "shrink";
}

/// What the host sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFrame {
    /// Grows by one with each message of a connection, from 1.
    pub seq: u64,
    /// The message.
    pub message: HostMessage,
}

/// What the agent sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestFrame {
    /// Grows by one with each message of an agent, from 1, across connections.
    pub seq: u64,
    /// Time since the guest booted.
    pub uptime_ms: u64,
    /// The message.
    pub message: GuestMessage,
}

/// What the host says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum HostMessage {
    /// Opens a connection; repeated until answered.
    Hello {
        /// Newest version it speaks.
        version: u32,
        /// Oldest version it speaks.
        oldest: u32,
        /// Any number, new for each connection; the answer carries it.
        session: u64,
        /// Time between two statistics.
        statistics_ms: u64,
        /// Least time between two emergencies.
        emergency_ms: u64,
    },
    /// What became of a request.
    Answer {
        /// The request's number.
        request: u64,
        /// What became of it.
        outcome: Outcome,
        /// How much of it will be moved.
        bytes: u64,
        /// Why not all, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Make programs give so much back, before the balloon takes it.
    Shrink {
        /// The order's number, larger than those before it.
        number: u64,
        /// How much.
        bytes: u64,
        /// Time after which it is of no more use.
        within_ms: u64,
    },
    /// Programs that were made to shrink may grow again.
    Release {},
    /// What the balloon does; shrinkers rest while it deflates.
    Balloon {
        /// What it does.
        state: Balloon,
    },
    /// I am here; sent where nothing else was for a while.
    Heartbeat {},
    /// A message of a later version, to be passed over.
    #[serde(other)]
    Unknown,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All of it comes, or goes.
    Granted,
    /// Some of it does.
    Partly,
    /// None of it.
    Refused,
}

/// What the balloon does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balloon {
    /// It takes memory.
    Inflating,
    /// It gives memory.
    Deflating,
    /// Neither.
    Resting,
}

/// What an agent says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum GuestMessage {
    /// Answers a [`HostMessage::Hello`].
    Hello {
        /// Newest version it speaks.
        version: u32,
        /// Oldest version it speaks.
        oldest: u32,
        /// The host's number.
        session: u64,
        /// Any number, new for each start of the agent.
        instance: u64,
        /// The agent's name and version.
        agent: String,
        /// The guest's kernel and its release.
        system: String,
        /// Bytes of a page.
        page_bytes: u64,
        /// What it can do, see [`capability`].
        capabilities: Vec<String>,
        /// Its shrinkers, in the order they are used in.
        shrinkers: Vec<String>,
    },
    /// How the guest is doing; once a period.
    Statistics(Box<Statistics>),
    /// How long memory has not been used; less often.
    Ages(Ages),
    /// Asks for memory, offers it, or cries for help.
    Request {
        /// Grows by one with each request of an agent, from 1.
        number: u64,
        /// What is asked.
        kind: Kind,
        /// How much; 0 for an emergency of unknown size.
        bytes: u64,
        /// Why.
        why: Why,
    },
    /// Shrinkers are at work for an order: the balloon is to wait.
    Shrinking {
        /// The order's number.
        number: u64,
        /// What each could give.
        offers: Vec<Offer>,
    },
    /// Shrinkers are done with an order.
    Shrunk {
        /// The order's number.
        number: u64,
        /// What they gave, all together.
        gave_bytes: u64,
        /// What each gave.
        given: Vec<Given>,
    },
    /// I am here.
    Heartbeat {},
    /// Something asked for cannot be done.
    Error {
        /// What is wrong.
        text: String,
    },
    /// A message of a later version, to be passed over.
    #[serde(other)]
    Unknown,
}

/// What is asked (flexmemd §3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// More memory, before it would have to reclaim.
    More,
    /// Less: it can spare some.
    Less,
    /// More, at once: its reclaim fails.
    Emergency,
}

/// Why a request is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// For machines.
    pub rule: Rule,
    /// In words, with the figures.
    pub text: String,
}

/// The rule by which a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Free memory is about to fall under the low watermark.
    FreeFalling,
    /// What was reclaimed since the last look is read back.
    ReadsBack,
    /// Hardly any of what could be reclaimed is in use.
    MostlyInactive,
    /// Most attempts at reclaim fail.
    ReclaimFails,
    /// One that this side does not know.
    #[serde(other)]
    Other,
}

/// What a shrinker could give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Its name.
    pub shrinker: String,
    /// How much.
    pub can_give_bytes: u64,
}

/// What a shrinker gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Its name.
    pub shrinker: String,
    /// How much.
    pub gave_bytes: u64,
    /// Why not more, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Why a payload is no message, or a message cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// It is no JSON, or has a field of another form.
    #[error("not a message: {0}")]
    Form(String),
    /// It has a number that not every reader reads exactly.
    #[error("{name} = {value}: expected at most {NUMBER_MAX}")]
    Number {
        /// The field.
        name: &'static str,
        /// What it is.
        value: u64,
    },
    /// It has a text that is too long.
    #[error("{name} of {len} bytes: expected at most {max}")]
    Text {
        /// The field.
        name: &'static str,
        /// Its length, in bytes.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// It has a list that is too long.
    #[error("{len} {name}: expected at most {max}")]
    List {
        /// The field.
        name: &'static str,
        /// Its length.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// It does not fit a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// Something that is sent as one frame.
pub trait Message: Serialize + DeserializeOwned {
    /// Checks the bounds of its parts.
    ///
    /// # Errors
    /// The first part that is over its bound.
    fn check(&self) -> Result<(), MessageError>;
}

/// `message` as a frame.
///
/// # Errors
/// What of it is over its bound.
pub fn encode<M: Message>(message: &M) -> Result<Vec<u8>, MessageError> {
    message.check()?;
    let text = serde_json::to_string(message).map_err(|e| MessageError::Form(e.to_string()))?;
    Ok(frame::encode(&text)?)
}

/// The message in a payload.
///
/// # Errors
/// What of it is no message or over its bound.
pub fn decode<M: Message>(payload: &str) -> Result<M, MessageError> {
    let message: M =
        serde_json::from_str(payload).map_err(|error| MessageError::Form(error.to_string()))?;
    message.check()?;
    Ok(message)
}

/// `text` cut to what a message may carry.
pub fn short(text: &str) -> String {
    text.get(..text.floor_char_boundary(TEXT_LEN_MAX)).unwrap_or_default().to_owned()
}

/// The version both speak, if there is one.
pub fn common_version(newest: u32, oldest: u32) -> Option<u32> {
    let version = newest.min(VERSION);
    (version >= oldest.max(VERSION_OLDEST)).then_some(version)
}

impl Message for HostFrame {
    fn check(&self) -> Result<(), MessageError> {
        number("seq", self.seq)?;
        match &self.message {
            HostMessage::Hello { session, statistics_ms, emergency_ms, .. } => {
                number("session", *session)?;
                number("statistics_ms", *statistics_ms)?;
                number("emergency_ms", *emergency_ms)
            }
            HostMessage::Answer { request, bytes, why, .. } => {
                number("request", *request)?;
                number("bytes", *bytes)?;
                why.as_ref().map_or(Ok(()), |why| text("why", why))
            }
            HostMessage::Shrink { number: order, bytes, within_ms } => {
                number("number", *order)?;
                number("bytes", *bytes)?;
                number("within_ms", *within_ms)
            }
            HostMessage::Release {}
            | HostMessage::Balloon { .. }
            | HostMessage::Heartbeat {}
            | HostMessage::Unknown => Ok(()),
        }
    }
}

impl Message for GuestFrame {
    fn check(&self) -> Result<(), MessageError> {
        number("seq", self.seq)?;
        number("uptime_ms", self.uptime_ms)?;
        match &self.message {
            GuestMessage::Hello {
                session,
                instance,
                agent,
                system,
                page_bytes,
                capabilities,
                shrinkers,
                ..
            } => {
                number("session", *session)?;
                number("instance", *instance)?;
                number("page_bytes", *page_bytes)?;
                text("agent", agent)?;
                text("system", system)?;
                names("capabilities", capabilities.iter())?;
                names("shrinkers", shrinkers.iter())
            }
            GuestMessage::Statistics(statistics) => statistics
                .figures()
                .try_for_each(|(name, value)| number(name, value.unwrap_or_default())),
            GuestMessage::Ages(ages) => {
                list("groups", ages.groups.len(), AGE_GROUPS_MAX)?;
                ages.groups.iter().try_for_each(|group| {
                    number("idle_ms", group.idle_ms)?;
                    number("anon_bytes", group.anon_bytes)?;
                    number("file_bytes", group.file_bytes)
                })
            }
            GuestMessage::Request { number: request, bytes, why, .. } => {
                number("number", *request)?;
                number("bytes", *bytes)?;
                text("text", &why.text)
            }
            GuestMessage::Shrinking { number: order, offers } => {
                number("number", *order)?;
                names("shrinker", offers.iter().map(|offer| &offer.shrinker))?;
                offers.iter().try_for_each(|offer| number("can_give_bytes", offer.can_give_bytes))
            }
            GuestMessage::Shrunk { number: order, gave_bytes, given } => {
                number("number", *order)?;
                number("gave_bytes", *gave_bytes)?;
                names("shrinker", given.iter().map(|given| &given.shrinker))?;
                given.iter().try_for_each(|given| {
                    number("gave_bytes", given.gave_bytes)?;
                    given.why.as_ref().map_or(Ok(()), |why| text("why", why))
                })
            }
            GuestMessage::Error { text: what } => text("text", what),
            GuestMessage::Heartbeat {} | GuestMessage::Unknown => Ok(()),
        }
    }
}

fn number(name: &'static str, value: u64) -> Result<(), MessageError> {
    if value > NUMBER_MAX { Err(MessageError::Number { name, value }) } else { Ok(()) }
}

fn text(name: &'static str, text: &str) -> Result<(), MessageError> {
    at_most(name, text.len(), TEXT_LEN_MAX)
}

fn at_most(name: &'static str, len: usize, max: usize) -> Result<(), MessageError> {
    if len > max { Err(MessageError::Text { name, len, max }) } else { Ok(()) }
}

fn list(name: &'static str, len: usize, max: usize) -> Result<(), MessageError> {
    if len > max { Err(MessageError::List { name, len, max }) } else { Ok(()) }
}

fn names<'a>(
    name: &'static str,
    mut names: impl ExactSizeIterator<Item = &'a String>,
) -> Result<(), MessageError> {
    list(name, names.len(), NAMES_MAX)?;
    names.try_for_each(|it| at_most(name, it.len(), NAME_LEN_MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::statistics::{AgeGroup, Counters, Memory};

    fn guest(message: GuestMessage) -> GuestFrame {
        GuestFrame { seq: 1, uptime_ms: 2, message }
    }

    #[test]
    fn what_is_not_known_is_passed_over() {
        let later = r#"{"seq":1,"uptime_ms":2,"message":{"type":"weather","sky":[1,{"a":2}]}}"#;
        assert_eq!(decode::<GuestFrame>(later).unwrap(), guest(GuestMessage::Unknown));
        let more = r#"{"seq":1,"uptime_ms":2,"zone":"x","message":{"type":"heartbeat","mood":7}}"#;
        assert_eq!(decode::<GuestFrame>(more).unwrap(), guest(GuestMessage::Heartbeat {}));
        let rule = r#"{"rule":"the-moon","text":"full"}"#;
        assert_eq!(serde_json::from_str::<Why>(rule).unwrap().rule, Rule::Other);
        let few =
            r#"{"seq":1,"uptime_ms":2,"message":{"type":"statistics","memory":{"free_bytes":5}}}"#;
        let memory = Memory { free_bytes: Some(5), ..Memory::default() };
        let statistics = Statistics { memory, ..Statistics::default() };
        let statistics = guest(GuestMessage::Statistics(Box::new(statistics)));
        assert_eq!(decode::<GuestFrame>(few).unwrap(), statistics);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for payload in [
            "",
            "7",
            "{}",
            r#"{"seq":1,"uptime_ms":2,"message":{}}"#,
            r#"{"seq":1,"message":{"type":"heartbeat"}}"#,
            r#"{"seq":-1,"uptime_ms":2,"message":{"type":"heartbeat"}}"#,
            r#"{"seq":1.5,"uptime_ms":2,"message":{"type":"heartbeat"}}"#,
            r#"{"seq":1,"uptime_ms":2,"message":{"type":"request","number":1}}"#,
            r#"{"seq":1,"uptime_ms":2,"message":{"type":"heartbeat"}} {}"#,
        ] {
            let error = decode::<GuestFrame>(payload).unwrap_err();
            assert!(matches!(error, MessageError::Form(_)), "{payload}: {error}");
        }
        let deep = format!("{{\"seq\":1,\"x\":{}", "[".repeat(10_000));
        assert!(decode::<HostFrame>(&deep).is_err());
    }

    #[test]
    fn every_part_has_its_bound_in_both_directions() {
        let too_large = |name: &str, frame: &GuestFrame| {
            let payload = serde_json::to_string(frame).unwrap();
            let error = decode::<GuestFrame>(&payload).unwrap_err();
            assert_eq!(encode(frame), Err(error.clone()), "{name}");
            assert!(error.to_string().contains(name), "{name}: {error}");
        };
        let beyond = NUMBER_MAX + 1;
        let text = "x".repeat(TEXT_LEN_MAX + 1);
        let memory = Memory { swap_free_bytes: Some(beyond), ..Memory::default() };
        let statistics = Statistics { memory, ..Statistics::default() };
        too_large("swap_free_bytes", &guest(GuestMessage::Statistics(Box::new(statistics))));
        let counters = Counters { oom_kills: Some(beyond), ..Counters::default() };
        let statistics = Statistics { counters, ..Statistics::default() };
        too_large("oom_kills", &guest(GuestMessage::Statistics(Box::new(statistics))));
        let group = AgeGroup { idle_ms: 1, anon_bytes: 1, file_bytes: 1 };
        let ages = Ages { groups: vec![group; AGE_GROUPS_MAX + 1] };
        too_large("65 groups", &guest(GuestMessage::Ages(ages)));
        too_large("text of 257 bytes", &guest(GuestMessage::Error { text: text.clone() }));
        let offer = Offer { shrinker: "s".to_owned(), can_give_bytes: 1 };
        let offers = vec![offer; NAMES_MAX + 1];
        too_large("33 shrinker", &guest(GuestMessage::Shrinking { number: 1, offers }));
        too_large(
            "uptime_ms",
            &GuestFrame { uptime_ms: beyond, ..guest(GuestMessage::Heartbeat {}) },
        );
        let shrink = HostMessage::Shrink { number: 1, bytes: beyond, within_ms: 1 };
        assert!(encode(&HostFrame { seq: 1, message: shrink }).is_err());
        assert_eq!(short(&text).len(), TEXT_LEN_MAX);
        assert_eq!(short(&"\u{20ac}".repeat(100)).len(), 255);
    }

    /// The largest message there may be is not refused for its length.
    #[test]
    fn whatever_is_within_its_bounds_fits_a_frame() {
        let figure = Some(NUMBER_MAX);
        let group =
            AgeGroup { idle_ms: NUMBER_MAX, anon_bytes: NUMBER_MAX, file_bytes: NUMBER_MAX };
        let ages = Ages { groups: vec![group; AGE_GROUPS_MAX] };
        let name = "\u{1}".repeat(NAME_LEN_MAX);
        let offer = Offer { shrinker: name, can_give_bytes: NUMBER_MAX };
        let offers = vec![offer; NAMES_MAX];
        for message in [
            GuestMessage::Ages(ages),
            GuestMessage::Shrinking { number: NUMBER_MAX, offers },
            GuestMessage::Error { text: "\u{1}".repeat(TEXT_LEN_MAX) },
        ] {
            encode(&guest(message)).unwrap();
        }
        let memory = Memory { total_bytes: figure, ..Memory::default() };
        let statistics = Statistics { memory, ..Statistics::default() };
        encode(&guest(GuestMessage::Statistics(Box::new(statistics)))).unwrap();
    }

    #[test]
    fn the_highest_common_version_is_spoken() {
        for (newest, oldest, common) in
            [(1, 1, Some(1)), (7, 1, Some(1)), (7, 2, None), (0, 0, None), (u32::MAX, 0, Some(1))]
        {
            assert_eq!(common_version(newest, oldest), common, "{newest} {oldest}");
        }
    }

    fn request() -> impl Strategy<Value = GuestMessage> {
        let kind = prop::sample::select(vec![Kind::More, Kind::Less, Kind::Emergency]);
        (0..=NUMBER_MAX, kind, 0..=NUMBER_MAX, ".{0,60}").prop_map(|(number, kind, bytes, text)| {
            let why = Why { rule: Rule::FreeFalling, text };
            GuestMessage::Request { number, kind, bytes, why }
        })
    }

    fn statistics() -> impl Strategy<Value = GuestMessage> {
        prop::collection::vec(prop::option::of(0..=NUMBER_MAX), 14).prop_map(|n| {
            let memory = Memory {
                total_bytes: n[0],
                free_bytes: n[1],
                active_bytes: n[2],
                committed_bytes: n[3],
                ..Memory::default()
            };
            let counters = Counters {
                swap_in_pages: n[4],
                steal_direct_pages: n[5],
                oom_kills: n[6],
                ..Counters::default()
            };
            let mut statistics = Statistics { memory, counters, ..Statistics::default() };
            statistics.watermarks.low_bytes = n[7];
            statistics.pressure = n[8].map(|_| Default::default());
            GuestMessage::Statistics(Box::new(statistics))
        })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            seq in 0..=NUMBER_MAX, uptime_ms in 0..=NUMBER_MAX,
            message in prop_oneof![request(), statistics()]
        ) {
            let sent = GuestFrame { seq, uptime_ms, message };
            let mut reader = crate::FrameReader::new();
            reader.push(&encode(&sent).unwrap());
            let payload = reader.next_frame().unwrap().unwrap();
            prop_assert_eq!(decode::<GuestFrame>(&payload).unwrap(), sent);
        }

        #[test]
        fn no_text_breaks_it(payload in ".{0,200}") {
            let _ = decode::<GuestFrame>(&payload);
            let _ = decode::<HostFrame>(&payload);
        }
    }
}
