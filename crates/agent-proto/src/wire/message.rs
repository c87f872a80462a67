//! Messages, one per frame.
//!
//! The host repeats its hello until the agent answers. Then the agent reports and sends requests,
//! and the host answers and sends orders. Every message of an agent carries a sequence number,
//! which grows by one for as long as the agent runs, and the guest's uptime; they reveal lost
//! messages, a restarted agent and a reboot.
//!
//! Unknown fields are ignored, and unknown message types decode as `Unknown`, so both can be added
//! within a version. A new version is needed only when a meaning changes. Each hello states the
//! versions its sender speaks; both sides use the highest common one.
//!
//! Limits: the constants, checked by [`decode`] and [`encode`].

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::wire::frame::{self, FrameError};
use crate::wire::statistics::{AGE_GROUPS_MAX, Ages, NUMBER_MAX, Statistics};

/// Newest message version this side speaks.
pub const VERSION: u32 = 1;
/// Oldest message version this side speaks.
pub const VERSION_OLDEST: u32 = 1;
/// Longest text, in bytes.
pub const TEXT_LEN_MAX: usize = 256;
/// Longest name of a capability or a shrinker, in bytes.
pub const NAME_LEN_MAX: usize = 64;
/// Most entries in a list of names.
pub const NAMES_MAX: usize = 32;

/// Names of the optional parts of the protocol that an agent supports.
pub mod capability {
    /// Sends statistics.
    pub const STATISTICS: &str = "statistics";
    /// Its statistics contain pressure.
    pub const PRESSURE: &str = "pressure";
    /// Its statistics contain watermarks.
    pub const WATERMARKS: &str = "watermarks";
    /// Sends requests.
    pub const REQUESTS: &str = "requests";
    /// Sends histograms of idle ages.
    pub const AGES: &str = "ages";
    /// Carries out orders to shrink programs.
    pub const SHRINK: &str = "shrink";
}

/// A frame from the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFrame {
    /// Sequence number: 1 for the first message of a connection.
    pub seq: u64,
    /// The message.
    pub message: HostMessage,
}

/// A frame from the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestFrame {
    /// Sequence number: 1 for the first message of an agent, continued across connections.
    pub seq: u64,
    /// Time since the guest booted.
    pub uptime_ms: u64,
    /// The message.
    pub message: GuestMessage,
}

/// A message from the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum HostMessage {
    /// Opens a connection; repeated until answered.
    Hello {
        /// Newest version the host speaks.
        version: u32,
        /// Oldest version the host speaks.
        oldest: u32,
        /// A number, new for each connection, that the answer repeats.
        session: u64,
        /// Interval between statistics.
        statistics_ms: u64,
        /// Shortest interval between emergencies.
        emergency_ms: u64,
    },
    /// Answers a request.
    Answer {
        /// The request's number.
        request: u64,
        /// The decision.
        outcome: RequestOutcome,
        /// How much memory will be moved.
        bytes: u64,
        /// Why not all, as text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Orders programs to give memory back, before the balloon takes it.
    Shrink {
        /// The order's number, larger than that of the order before.
        number: u64,
        /// How much.
        bytes: u64,
        /// Time limit.
        within_ms: u64,
    },
    /// Lets shrunk programs grow again.
    Release {},
    /// Reports what the balloon does; shrinkers pause while it deflates.
    Balloon {
        /// What it does.
        state: BalloonActivity,
    },
    /// Sent when nothing else was sent for a while.
    Heartbeat {},
    /// A message type added later; ignored.
    #[serde(other)]
    Unknown,
}

/// The host's decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestOutcome {
    /// All of the memory will be moved.
    Granted,
    /// Some of it will be moved.
    Partly,
    /// None of it will be moved.
    Refused,
}

/// What the balloon does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BalloonActivity {
    /// It takes memory from the guest.
    Inflating,
    /// It returns memory to the guest.
    Deflating,
    /// Neither.
    Resting,
}

/// A message from an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum GuestMessage {
    /// Answers a [`HostMessage::Hello`].
    Hello(GuestGreeting),
    /// The guest's statistics; once per period.
    Statistics(Box<Statistics>),
    /// Idle ages of memory; less often.
    Ages(Ages),
    /// Asks for memory, offers memory, or declares an emergency.
    Request {
        /// The request's number: 1 for the first request of an agent.
        number: u64,
        /// Kind of request.
        kind: WireRequestKind,
        /// How much; 0 for an emergency of unknown size.
        bytes: u64,
        /// Its reason.
        why: RequestReason,
    },
    /// Shrinkers work on an order: the balloon must wait.
    Shrinking {
        /// The order's number.
        number: u64,
        /// What each shrinker can give.
        offers: Vec<ShrinkerOffer>,
    },
    /// Shrinkers are done with an order.
    Shrunk {
        /// The order's number.
        number: u64,
        /// The total given.
        gave_bytes: u64,
        /// What each shrinker gave.
        given: Vec<ShrinkerResult>,
    },
    /// Sent when nothing else was sent for a while.
    Heartbeat {},
    /// Something could not be done.
    Error {
        /// The error.
        text: String,
    },
    /// A message type added later; ignored.
    #[serde(other)]
    Unknown,
}

/// What an agent says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestGreeting {
    /// Newest version the agent speaks.
    pub version: u32,
    /// Oldest version the agent speaks.
    pub oldest: u32,
    /// The session number of the host's hello; 0: the agent has not been greeted.
    pub session: u64,
    /// A number, new for each start of the agent.
    pub instance: u64,
    /// The agent's name and version.
    pub agent: String,
    /// The guest's kernel and its release.
    pub system: String,
    /// The guest's page size.
    pub page_bytes: u64,
    /// What the agent can do, see [`capability`].
    pub capabilities: Vec<String>,
    /// Its shrinkers, in the order of use.
    pub shrinkers: Vec<String>,
}

impl Default for GuestGreeting {
    /// An agent that speaks the versions of this side and cannot do anything yet.
    fn default() -> GuestGreeting {
        GuestGreeting {
            version: VERSION,
            oldest: VERSION_OLDEST,
            session: 0,
            instance: 0,
            agent: String::new(),
            system: "linux".to_owned(),
            page_bytes: 4096,
            capabilities: Vec::new(),
            shrinkers: Vec::new(),
        }
    }
}

/// Kind of request (flexmemd §3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WireRequestKind {
    /// More memory, before the guest would have to reclaim.
    More,
    /// The guest can do with less.
    Less,
    /// More memory at once: reclaim fails.
    Emergency,
}

/// The reason for a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestReason {
    /// The rule that caused it.
    pub rule: RequestRule,
    /// The reason as text, with numbers.
    pub text: String,
}

/// The rule that caused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestRule {
    /// Free memory is about to fall under the low watermark.
    FreeFalling,
    /// Reclaimed pages are read back.
    ReadsBack,
    /// Hardly any reclaimable memory is in use.
    MostlyInactive,
    /// Most pages that reclaim scans cannot be reclaimed.
    ReclaimFails,
    /// A rule this side does not know.
    #[serde(other)]
    Other,
}

/// What a shrinker can give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShrinkerOffer {
    /// The shrinker's name.
    pub shrinker: String,
    /// How much it can give.
    pub can_give_bytes: u64,
}

/// What a shrinker gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShrinkerResult {
    /// The shrinker's name.
    pub shrinker: String,
    /// How much it gave.
    pub gave_bytes: u64,
    /// Why not more, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Why a payload is not a message, or a message cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Not JSON, or a field has the wrong type.
    #[error("not a message: {0}")]
    Form(String),
    /// A number that not every JSON reader reads exactly.
    #[error("{name} = {value}: expected at most {NUMBER_MAX}")]
    Number {
        /// The field.
        name: &'static str,
        /// Its value.
        value: u64,
    },
    /// A text that is too long.
    #[error("{name} of {len} bytes: expected at most {max}")]
    Text {
        /// The field.
        name: &'static str,
        /// Its length, in bytes.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// A list that is too long.
    #[error("{len} {name}: expected at most {max}")]
    List {
        /// The field.
        name: &'static str,
        /// Its length.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// The message does not fit a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// A message that is sent as one frame.
pub trait WireMessage: Serialize + DeserializeOwned {
    /// Checks the bounds of all fields.
    ///
    /// # Errors
    /// The first field over its bound.
    fn check(&self) -> Result<(), MessageError>;
}

/// Encodes `message` as a frame.
///
/// # Errors
/// The first field over its bound.
pub fn encode<M: WireMessage>(message: &M) -> Result<Vec<u8>, MessageError> {
    Ok(frame::encode(&payload(message)?)?)
}

/// Encodes `message` as a payload without a frame, for transports that keep messages whole.
///
/// # Errors
/// The first field over its bound.
pub fn payload<M: WireMessage>(message: &M) -> Result<String, MessageError> {
    message.check()?;
    serde_json::to_string(message).map_err(|error| MessageError::Form(error.to_string()))
}

/// Decodes a payload.
///
/// # Errors
/// Why it is not a message, or the first field over its bound.
pub fn decode<M: WireMessage>(payload: &str) -> Result<M, MessageError> {
    let message: M =
        serde_json::from_str(payload).map_err(|error| MessageError::Form(error.to_string()))?;
    message.check()?;
    Ok(message)
}

/// `text` truncated to [`TEXT_LEN_MAX`].
pub fn truncated(text: &str) -> String {
    text.get(..text.floor_char_boundary(TEXT_LEN_MAX)).unwrap_or_default().to_owned()
}

/// The highest version that both sides speak.
pub fn common_version(newest: u32, oldest: u32) -> Option<u32> {
    let version = newest.min(VERSION);
    (version >= oldest.max(VERSION_OLDEST)).then_some(version)
}

impl WireMessage for HostFrame {
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

impl WireMessage for GuestFrame {
    fn check(&self) -> Result<(), MessageError> {
        number("seq", self.seq)?;
        number("uptime_ms", self.uptime_ms)?;
        match &self.message {
            GuestMessage::Hello(hello) => {
                number("session", hello.session)?;
                number("instance", hello.instance)?;
                number("page_bytes", hello.page_bytes)?;
                text("agent", &hello.agent)?;
                text("system", &hello.system)?;
                names("capabilities", hello.capabilities.iter())?;
                names("shrinkers", hello.shrinkers.iter())
            }
            GuestMessage::Statistics(statistics) => statistics
                .fields()
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
    use crate::wire::statistics::{AgeGroup, KernelCounters, MemorySizes};

    fn guest(message: GuestMessage) -> GuestFrame {
        GuestFrame { seq: 1, uptime_ms: 2, message }
    }

    #[test]
    fn unknown_fields_and_types_are_ignored() {
        let later = r#"{"seq":1,"uptime_ms":2,"message":{"type":"weather","sky":[1,{"a":2}]}}"#;
        assert_eq!(decode::<GuestFrame>(later).unwrap(), guest(GuestMessage::Unknown));
        let more = r#"{"seq":1,"uptime_ms":2,"zone":"x","message":{"type":"heartbeat","mood":7}}"#;
        assert_eq!(decode::<GuestFrame>(more).unwrap(), guest(GuestMessage::Heartbeat {}));
        let rule = r#"{"rule":"the-moon","text":"full"}"#;
        assert_eq!(serde_json::from_str::<RequestReason>(rule).unwrap().rule, RequestRule::Other);
        let few =
            r#"{"seq":1,"uptime_ms":2,"message":{"type":"statistics","memory":{"free_bytes":5}}}"#;
        let memory = MemorySizes { free_bytes: Some(5), ..MemorySizes::default() };
        let statistics = Statistics { memory, ..Statistics::default() };
        let statistics = guest(GuestMessage::Statistics(Box::new(statistics)));
        assert_eq!(decode::<GuestFrame>(few).unwrap(), statistics);
    }

    #[test]
    fn payloads_that_are_not_messages_are_refused() {
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
    fn bounds_are_checked_when_encoding_and_decoding() {
        let too_large = |name: &str, frame: &GuestFrame| {
            let payload = serde_json::to_string(frame).unwrap();
            let error = decode::<GuestFrame>(&payload).unwrap_err();
            assert_eq!(encode(frame), Err(error.clone()), "{name}");
            assert!(error.to_string().contains(name), "{name}: {error}");
        };
        let beyond = NUMBER_MAX + 1;
        let text = "x".repeat(TEXT_LEN_MAX + 1);
        let memory = MemorySizes { swap_free_bytes: Some(beyond), ..MemorySizes::default() };
        let statistics = Statistics { memory, ..Statistics::default() };
        too_large("swap_free_bytes", &guest(GuestMessage::Statistics(Box::new(statistics))));
        let counters = KernelCounters { oom_kills: Some(beyond), ..KernelCounters::default() };
        let statistics = Statistics { counters, ..Statistics::default() };
        too_large("oom_kills", &guest(GuestMessage::Statistics(Box::new(statistics))));
        let group = AgeGroup { idle_ms: 1, anon_bytes: 1, file_bytes: 1 };
        let ages = Ages { groups: vec![group; AGE_GROUPS_MAX + 1] };
        too_large("65 groups", &guest(GuestMessage::Ages(ages)));
        too_large("text of 257 bytes", &guest(GuestMessage::Error { text: text.clone() }));
        let offer = ShrinkerOffer { shrinker: "s".to_owned(), can_give_bytes: 1 };
        let offers = vec![offer; NAMES_MAX + 1];
        too_large("33 shrinker", &guest(GuestMessage::Shrinking { number: 1, offers }));
        too_large(
            "uptime_ms",
            &GuestFrame { uptime_ms: beyond, ..guest(GuestMessage::Heartbeat {}) },
        );
        let shrink = HostMessage::Shrink { number: 1, bytes: beyond, within_ms: 1 };
        assert!(encode(&HostFrame { seq: 1, message: shrink }).is_err());
        assert_eq!(truncated(&text).len(), TEXT_LEN_MAX);
        assert_eq!(truncated(&"\u{20ac}".repeat(100)).len(), 255);
    }

    #[test]
    fn the_largest_messages_fit_a_frame() {
        let field = Some(NUMBER_MAX);
        let group =
            AgeGroup { idle_ms: NUMBER_MAX, anon_bytes: NUMBER_MAX, file_bytes: NUMBER_MAX };
        let ages = Ages { groups: vec![group; AGE_GROUPS_MAX] };
        let name = "\u{1}".repeat(NAME_LEN_MAX);
        let offer = ShrinkerOffer { shrinker: name, can_give_bytes: NUMBER_MAX };
        let offers = vec![offer; NAMES_MAX];
        for message in [
            GuestMessage::Ages(ages),
            GuestMessage::Shrinking { number: NUMBER_MAX, offers },
            GuestMessage::Error { text: "\u{1}".repeat(TEXT_LEN_MAX) },
        ] {
            encode(&guest(message)).unwrap();
        }
        let memory = MemorySizes { total_bytes: field, ..MemorySizes::default() };
        let statistics = Statistics { memory, ..Statistics::default() };
        encode(&guest(GuestMessage::Statistics(Box::new(statistics)))).unwrap();
    }

    #[test]
    fn the_highest_common_version_is_used() {
        for (newest, oldest, common) in
            [(1, 1, Some(1)), (7, 1, Some(1)), (7, 2, None), (0, 0, None), (u32::MAX, 0, Some(1))]
        {
            assert_eq!(common_version(newest, oldest), common, "{newest} {oldest}");
        }
    }

    fn request() -> impl Strategy<Value = GuestMessage> {
        let kind = prop::sample::select(vec![
            WireRequestKind::More,
            WireRequestKind::Less,
            WireRequestKind::Emergency,
        ]);
        (0..=NUMBER_MAX, kind, 0..=NUMBER_MAX, ".{0,60}").prop_map(|(number, kind, bytes, text)| {
            let why = RequestReason { rule: RequestRule::FreeFalling, text };
            GuestMessage::Request { number, kind, bytes, why }
        })
    }

    fn statistics() -> impl Strategy<Value = GuestMessage> {
        prop::collection::vec(prop::option::of(0..=NUMBER_MAX), 14).prop_map(|n| {
            let memory = MemorySizes {
                total_bytes: n[0],
                free_bytes: n[1],
                active_bytes: n[2],
                committed_bytes: n[3],
                ..MemorySizes::default()
            };
            let counters = KernelCounters {
                swap_in_pages: n[4],
                steal_direct_pages: n[5],
                oom_kills: n[6],
                ..KernelCounters::default()
            };
            let mut statistics = Statistics { memory, counters, ..Statistics::default() };
            statistics.watermarks.low_bytes = n[7];
            statistics.pressure = n[8].map(|_| Default::default());
            GuestMessage::Statistics(Box::new(statistics))
        })
    }

    proptest! {
        #[test]
        fn encoded_messages_decode_to_the_same(
            seq in 0..=NUMBER_MAX, uptime_ms in 0..=NUMBER_MAX,
            message in prop_oneof![request(), statistics()]
        ) {
            let sent = GuestFrame { seq, uptime_ms, message };
            let mut reader = crate::wire::FrameReader::new();
            reader.push(&encode(&sent).unwrap());
            let payload = reader.next_frame().unwrap().unwrap();
            prop_assert_eq!(decode::<GuestFrame>(&payload).unwrap(), sent);
        }

        #[test]
        fn arbitrary_text_does_not_panic(payload in ".{0,200}") {
            let _ = decode::<GuestFrame>(&payload);
            let _ = decode::<HostFrame>(&payload);
        }
    }
}
