//! Changes a machine's answers on their way to the daemon.
//!
//! Idea: an answer consists of lines, one for each message. After a strike the next answer is
//! doubled, cut or reordered, or ids are exchanged; forged replies have an id that was answered
//! long ago.
//! Limits: one kind at a time, the last one that struck.

use std::time::Duration;

use fastrand::Rng;

use crate::fault::Fault;

/// The id of a connection's first command, which is always answered before others are sent.
const ANSWERED: u64 = 0;

/// Changes answers.
#[derive(Debug)]
pub(crate) struct Tamper {
    /// The fault that strikes the next answer, and its amount.
    next: Option<(Fault, u64)>,
    /// Until when replies are forged, and the balloon size in bytes that they report.
    forges: Option<(Duration, u64)>,
    /// Sabotage: forged replies have the id of the current question.
    takes_any: bool,
    /// The id of the `query-balloon` among the last commands.
    asked: Option<u64>,
}

impl Tamper {
    pub(crate) fn new(takes_any: bool) -> Tamper {
        Tamper { next: None, forges: None, takes_any, asked: None }
    }

    pub(crate) fn strike(&mut self, fault: Fault, until: Duration, amount: u64) {
        match fault {
            // From 0 to 4 GiB.
            Fault::ForgeReplies => self.forges = Some((until, (amount % 4096) << 20)),
            _ => self.next = Some((fault, amount)),
        }
    }

    /// Reads commands on their way to the machine.
    pub(crate) fn watch(&mut self, commands: &[u8]) {
        let text = String::from_utf8_lossy(commands);
        let asks = |line: &&str| line.contains("\"query-balloon\"");
        self.asked = text.lines().find(asks).and_then(id_in);
    }

    /// The bytes that arrive instead of `answer`.
    pub(crate) fn tampered(&mut self, answer: Vec<u8>, now: Duration) -> Vec<u8> {
        let is_forging = self.forges.is_some_and(|(until, _)| now < until);
        if answer.is_empty() || (!is_forging && self.next.is_none()) {
            return answer;
        }
        let text = String::from_utf8(answer).expect("a machine sends text");
        let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        if let (true, Some((_, actual)), Some(asked)) = (is_forging, self.forges, self.asked.take())
        {
            let id = if self.takes_any { asked } else { ANSWERED };
            lines.insert(0, format!("{{\"return\": {{\"actual\": {actual}}}, \"id\": {id}}}\r\n"));
        }
        let Some((fault, amount)) = self.next.take() else { return lines.concat().into_bytes() };
        let mut rng = Rng::with_seed(amount);
        match fault {
            Fault::DoubleReplies => {
                lines = lines.into_iter().flat_map(|line| [line.clone(), line]).collect();
            }
            Fault::SwapReplies => rng.shuffle(&mut lines),
            Fault::SwapIds => swap_ids(&mut lines),
            _ => {}
        }
        let mut bytes = lines.concat().into_bytes();
        if fault == Fault::DoubleBytes {
            bytes.extend_from_within(rng.usize(0..bytes.len())..);
        }
        bytes
    }
}

/// Exchanges the ids of the first two replies.
fn swap_ids(lines: &mut [String]) {
    let replies: Vec<(usize, u64)> =
        lines.iter().enumerate().filter_map(|(at, line)| Some((at, id_in(line)?))).collect();
    if let [(first, one), (second, other), ..] = replies[..] {
        for (at, from, to) in [(first, one, other), (second, other, one)] {
            lines[at] = lines[at].replace(&format!("\"id\":{from}"), &format!("\"id\":{to}"));
        }
    }
}

/// The id in a command or in a reply of the machine.
fn id_in(line: &str) -> Option<u64> {
    let (_, rest) = line.rsplit_once("\"id\":")?;
    let digits = rest.split(|it: char| !it.is_ascii_digit()).next()?;
    digits.parse().ok()
}
